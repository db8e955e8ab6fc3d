"""What crosses the wire: JSON bodies, ids, pages of lists, and request headers.

Rule: everything from outside is read here, once, bounded and checked, before a handler uses it.
"""

from hango.web.wire.bodies import json_response, no_content, read_body, read_empty_body, read_id
from hango.web.wire.headers import MAX_WAIT, read_idempotency_key, read_trace, read_wait
from hango.web.wire.pages import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
    page_response,
    read_id_cursor,
    read_limit,
    read_seq_cursor,
)

__all__ = [
    "DEFAULT_LIMIT",
    "MAX_LIMIT",
    "MAX_WAIT",
    "json_response",
    "no_content",
    "page_response",
    "read_body",
    "read_empty_body",
    "read_id",
    "read_id_cursor",
    "read_idempotency_key",
    "read_limit",
    "read_seq_cursor",
    "read_trace",
    "read_wait",
]
