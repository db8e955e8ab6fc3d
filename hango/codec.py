"""The one way text and JSON cross a border: to Postgres, to a provider, to a client.

Postgres stores no NUL and no lone surrogate, JSON knows no NaN, and everything that is stored has a
bound.  What enters goes through here once; nothing else in hango cleans, cuts or dumps.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

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
CUT_NOTICE = "… [cut: {length} characters in all]"

_BROKEN = {0: REPLACEMENT} | dict.fromkeys(range(0xD800, 0xE000), REPLACEMENT)


def clean_text(text: str) -> str:
    """Replace what Postgres and UTF-8 cannot hold (NUL, lone surrogates) by U+FFFD."""
    return text.translate(_BROKEN)


def cut_text(text: str, limit: int) -> str:
    """Clean *text* and cut it to at most *limit* bytes of UTF-8, on a character boundary.

    A cut text ends in a notice that tells its whole length; the notice counts towards *limit* where
    it fits.
    """
    text = clean_text(text)
    if len(text) * 4 <= limit or len(encoded := text.encode()) <= limit:
        return text
    notice = CUT_NOTICE.format(length=len(text))
    room = max(limit - len(notice.encode()), 0)
    return encoded[:room].decode(errors="ignore") + (notice if room else "")


def clean_json(value: object) -> object:
    """Return *value* as JSON that every border takes: keys and texts cleaned, tuples as lists.

    Raises:
        InvalidInput: it holds something JSON has no word for (NaN, bytes, an object), a key that is
            not a text, or nests deeper than `MAX_DEPTH` (so also when it contains itself).
    """
    return _clean(value, MAX_DEPTH)


def _clean(value: object, depth: int) -> object:
    if depth < 0:
        raise InvalidInput(f"nested deeper than {MAX_DEPTH} levels")
    match value:
        case None | bool() | int():
            return value
        case float():
            if not math.isfinite(value):
                raise InvalidInput(f"{value} is not a JSON number")
            return value
        case str():
            return clean_text(value)
        case Mapping():
            return {_clean_key(key): _clean(item, depth - 1) for key, item in value.items()}
        case list() | tuple():
            return [_clean(item, depth - 1) for item in value]
        case _:
            raise InvalidInput(f"a {type(value).__name__} is not JSON")


def _clean_key(key: object) -> str:
    if not isinstance(key, str):
        raise InvalidInput(f"a {type(key).__name__} cannot be the key of a JSON object")
    return clean_text(key)


def dump_json(value: object) -> str:
    """Serialize *value* as compact JSON, in its own key order; raises as `clean_json` does."""
    return json.dumps(clean_json(value), ensure_ascii=False, separators=(",", ":"))


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
        raise InvalidInput(f"must be an object of type {', '.join(_BLOCKS)}", field=field)
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
