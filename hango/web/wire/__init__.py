"""What crosses the wire: JSON bodies, ids, pages of lists, and the headers a client steers us with.

Rule: everything that came from outside is read here, once, bounded and checked, before anybody looks
at it.  Only `hango.web` uses it.
"""

from hango.web.wire.bodies import (
    LONG,
    SHORT,
    Fields,
    answer,
    nothing,
    parse_json,
    read_fields,
    read_id,
    read_nothing,
)
from hango.web.wire.headers import LONGEST_WAIT, read_idempotency_key, read_trace, read_wait
from hango.web.wire.pages import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
    cursor_of,
    page_to_json,
    read_id_cursor,
    read_limit,
    read_seq_cursor,
)

__all__ = [
    "DEFAULT_LIMIT",
    "LONG",
    "LONGEST_WAIT",
    "MAX_LIMIT",
    "SHORT",
    "Fields",
    "answer",
    "cursor_of",
    "nothing",
    "page_to_json",
    "parse_json",
    "read_fields",
    "read_id",
    "read_id_cursor",
    "read_idempotency_key",
    "read_limit",
    "read_nothing",
    "read_seq_cursor",
    "read_trace",
    "read_wait",
]
