"""Pages of lists: ``limit`` and ``cursor`` in, ``data`` and ``next_cursor`` out.

Rule: a cursor is a position, never a permission.  It is the id (16 bytes) or the seq (8 bytes) of the
last row shown, in base64url; every query applies visibility again, so a cursor from another caller's
list shows nothing more.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import TypeVar
from uuid import UUID

import trio
from pydantic import BaseModel
from quart import Response

from hango.errors import InvalidInput
from hango.store.pages import INLINE_BYTES, Page
from hango.web.wire.bodies import text_response

DEFAULT_LIMIT = 50
MAX_LIMIT = 200

_ID_BYTES = 16
_SEQ_BYTES = 8

T = TypeVar("T")


def read_limit(query: Mapping[str, str]) -> int:
    """Return how many rows are asked for.

    Raises:
        InvalidInput: it is not a number from 1 to `MAX_LIMIT`.
    """
    text = query.get("limit", str(DEFAULT_LIMIT))
    if re.fullmatch(r"[0-9]{1,3}", text) is None or not 1 <= int(text) <= MAX_LIMIT:
        raise InvalidInput(f"must be a number from 1 to {MAX_LIMIT}", field="limit")
    return int(text)


def read_id_cursor(query: Mapping[str, str]) -> UUID | None:
    """Return the id after which the page begins; None for the first page."""
    raw = _read_cursor(query, _ID_BYTES)
    return UUID(bytes=raw) if raw is not None else None


def read_seq_cursor(query: Mapping[str, str]) -> int:
    """Return the seq after which the page begins; 0 for the first page."""
    raw = _read_cursor(query, _SEQ_BYTES)
    seq = int.from_bytes(raw, signed=True) if raw is not None else 0
    if seq < 0:
        raise _bad_cursor()
    return seq


def _read_cursor(query: Mapping[str, str], size: int) -> bytes | None:
    text = query.get("cursor")
    if text is None:
        return None
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):  # ValueError: not ASCII
        raise _bad_cursor() from None
    if len(raw) != size or _encode(raw) != text:
        raise _bad_cursor()
    return raw


def _bad_cursor() -> InvalidInput:
    return InvalidInput("is not a next_cursor of this list", field="cursor")


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def cursor_of(key: UUID | int) -> str:
    """Return the cursor of the row with that id or seq."""
    return _encode(key.bytes if isinstance(key, UUID) else key.to_bytes(_SEQ_BYTES, signed=True))


async def page_response(
    model: type[BaseModel], page: Page[T], key: Callable[[T], UUID | int]
) -> Response:
    """Return *page* as a response; a large one is built in a thread.

    Args:
        model: a subclass of `hango.web.models.responses.Page`.
        page: of values that the model's rows are made from.
        key: the id or seq of a row, which its cursor is made of.
    """
    cursor = cursor_of(key(page.rows[-1])) if page.more else None

    def build() -> str:
        return model.model_validate({"data": page.rows, "next_cursor": cursor}).model_dump_json()

    text = await trio.to_thread.run_sync(build) if page.size > INLINE_BYTES else build()
    return text_response(text)
