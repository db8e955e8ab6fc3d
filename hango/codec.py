"""The one way text and JSON cross a border: to Postgres, to a provider, to a client.

Postgres stores no NUL and no lone surrogate, JSON knows no NaN, and everything that is stored has a
bound.  What enters goes through here once; nothing else in hango cleans, cuts or dumps.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import attrs
import cattrs

from hango.domain import (
    Block,
    JsonObject,
    OpaqueBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from hango.errors import InvalidInput

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
MAX_DEPTH = 64  # levels of nesting; model APIs and databases give up not far beyond
MAX_SIZE = 64 * 1024 * 1024  # characters, and `VALUE_SIZE` for each value: a turn's results, all full
VALUE_SIZE = 256  # so a quarter of a million; a list of lists repeated grows to more in a blink
# Of a value inside a block, which is stored, listed and sent some levels deeper
PART_DEPTH = MAX_DEPTH - 8
LARGE = 500  # values; with some 30 µs for each in a schema, about what may run on the event loop
MAX_DIGITS = 1000  # of a whole number; Python itself refuses to write more than 4300
CUT_NOTICE = "… [cut: {length} characters in all]"

_TOO_LONG = 10**MAX_DIGITS
_BROKEN = re.compile(r"[\x00\ud800-\udfff]")


def clean_text(text: str) -> str:
    """Replace what Postgres and UTF-8 cannot hold (NUL, lone surrogates) by U+FFFD."""
    return _BROKEN.sub(REPLACEMENT, text)


def cut_text(text: str, limit: int) -> str:
    """Clean *text* and cut it to at most *limit* bytes of UTF-8, on a character boundary.

    A cut text ends in a notice that tells its whole length; the notice counts towards *limit* where
    it fits.
    """
    length = len(text)
    # a character has a byte at least, and cleaning keeps their number: the rest need not be looked at
    text = clean_text(text[: limit + 1])
    encoded = text.encode()
    if len(text) == length and len(encoded) <= limit:
        return text
    notice = CUT_NOTICE.format(length=length)
    if (room := limit - len(notice.encode())) < 0:
        room, notice = limit, ""
    return encoded[:room].decode(errors="ignore") + notice


def clean_json(value: object) -> object:
    """Return *value* as JSON that every border takes: keys and texts cleaned, tuples as lists.

    Raises:
        InvalidInput: it holds something JSON has no word for (NaN, bytes, an object), a key that is
            not a text, nests deeper than `MAX_DEPTH` (so also when it contains itself), or is larger
            than `MAX_SIZE` when written out (so also when it repeats its parts without end).
    """
    return _Cleaner().clean(value, MAX_DEPTH)


def clean_part(value: object) -> object:
    """Return *value* as `clean_json` does, such that it can be a part of a message.

    Raises:
        InvalidInput: as `clean_json`; the bounds are `PART_DEPTH` and half of `MAX_SIZE`.
    """
    return PartsCleaner().clean(value)


def is_large(value: object, limit: int = LARGE) -> bool:
    """Return whether *value* holds more than *limit* values, its parts' parts included."""
    waiting, room = [value], limit
    while waiting:
        item = waiting.pop()
        if isinstance(item, Mapping | list | tuple):
            room -= len(item)
            if room < 0:
                return True
            waiting += item.values() if isinstance(item, Mapping) else item
    return False


@attrs.define
class _Cleaner:
    """Cleans one value; *room* is how much of `MAX_SIZE` is left for it."""

    room: int = MAX_SIZE

    def clean(self, value: object, depth: int) -> object:
        if depth < 0:
            raise InvalidInput("nested too deep")
        self._take(VALUE_SIZE)
        match value:
            case None | bool():
                return value
            case int():
                return _short_number(value)
            case float():
                return _finite_number(value)
            case str():
                return self._text(value)
            case Mapping():
                return {self._key(k): self.clean(item, depth - 1) for k, item in value.items()}
            case list() | tuple():
                return [self.clean(item, depth - 1) for item in value]
            case _:
                raise InvalidInput(f"a value of type {type(value).__name__} is not JSON")

    def _key(self, key: object) -> str:
        if not isinstance(key, str):
            raise InvalidInput(f"the key of a JSON object must be a string, not {type(key).__name__}")
        return self._text(key)

    def _text(self, text: str) -> str:
        self._take(len(text))
        return clean_text(text)

    def _take(self, size: int) -> None:
        self.room -= size
        if self.room < 0:
            raise InvalidInput("too large to be stored")


@attrs.define
class PartsCleaner:
    """Cleans the values in the blocks of one message, which share one bound.

    Rule: whatever has passed here can be stored as one message, with its texts and blocks.
    """

    _cleaner: _Cleaner = attrs.field(factory=lambda: _Cleaner(MAX_SIZE // 2), init=False)

    def clean(self, value: object) -> object:
        """Clean one more value; raises as `clean_part`.  Once one is too large, so are all after it."""
        return self._cleaner.clean(value, PART_DEPTH)


def _short_number(value: int) -> int:
    if abs(value) >= _TOO_LONG:
        raise InvalidInput(f"a whole number of more than {MAX_DIGITS} digits")
    return value


def _finite_number(value: float) -> float:
    if not math.isfinite(value):
        raise InvalidInput(f"{value} is not a JSON number")
    return value


def dump_json(value: object, *, bounded: bool = True) -> str:
    """Serialize *value* as compact JSON, in its own key order; raises as `clean_json` does.

    What is made of stored values and is not stored itself need not be *bounded* in size.
    """
    cleaned = _Cleaner(MAX_SIZE if bounded else sys.maxsize).clean(value, MAX_DEPTH)
    return json.dumps(cleaned, ensure_ascii=False, separators=(",", ":"))


def time_to_json(time: datetime | None) -> str | None:
    """Return *time* as RFC 3339 in UTC with microseconds, or None."""
    if time is None:
        return None
    return time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


NOT_A_BLOCK = "must be an object of type"

# --- blocks --------------------------------------------------------------------------------

_BLOCKS: Mapping[str, type[Block]] = {
    block.TYPE: block
    for block in (
        TextBlock,
        ThinkingBlock,
        RedactedThinkingBlock,
        ToolUseBlock,
        ToolResultBlock,
        OpaqueBlock,
    )
}


def _exactly(value: object, kind: type) -> object:
    """Return *value* if it is of *kind*; a client's 5 is not quietly taken for "5"."""
    if isinstance(value, kind):
        return value
    raise InvalidInput(f"must be {_JSON_NAMES[kind]}, not {_json_name(value)}")


_JSON_NAMES: Mapping[type, str] = {
    str: "a string",
    bool: "true or false",
    dict: "an object",
    list: "a list",
    int: "a number",
    float: "a number",
    type(None): "null",
}


def _json_name(value: object) -> str:
    return _JSON_NAMES.get(type(value), type(value).__name__)


_converter = cattrs.Converter(forbid_extra_keys=True, detailed_validation=False)
for _kind in (str, bool, dict):
    _converter.register_structure_hook(_kind, _exactly)
_converter.register_structure_hook_func(
    lambda kind: kind == JsonObject, lambda value, _: _exactly(value, dict)
)


def blocks_to_json(blocks: Sequence[Block]) -> list[JsonObject]:
    """Return *blocks* as the JSON shape that the database, the API and the ports share."""
    return [_block_to_json(block) for block in blocks]


def _block_to_json(block: Block) -> JsonObject:
    fields = attrs.asdict(block, recurse=False)
    return {"type": block.TYPE} | {k: v for k, v in fields.items() if v is not None}


def blocks_from_json(values: object) -> tuple[Block, ...]:
    """Read blocks from their JSON shape; the inverse of `blocks_to_json`.

    Raises:
        InvalidInput: not a list of blocks; its field names the first wrong one (``0.text``).
    """
    if not isinstance(values, list):
        raise InvalidInput(f"must be a list of blocks, not {_json_name(values)}")
    return tuple(_block_from_json(value, str(index)) for index, value in enumerate(values))


def _block_from_json(value: object, field: str) -> Block:
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(kind, str) or kind not in _BLOCKS:
        raise InvalidInput(f"{NOT_A_BLOCK} {', '.join(_BLOCKS)}", field=field)
    fields = {key: item for key, item in value.items() if key != "type"}
    try:
        return _converter.structure(fields, _BLOCKS[kind])
    except KeyError as error:
        raise InvalidInput("is missing", field=f"{field}.{error.args[0]}") from None
    except cattrs.ForbiddenExtraKeysError as error:
        extra = min(error.extra_fields)
        raise InvalidInput("is not known here", field=f"{field}.{extra}") from None
    except InvalidInput as error:
        raise InvalidInput(str(error), field=field) from None
