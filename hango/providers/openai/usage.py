"""Token counts of a chat completion: pure.

One rule: counts are cumulative, so a later one replaces an earlier one; a count that is no count is 0.
"""

from __future__ import annotations

from collections.abc import Mapping

from hango.domain import JsonObject, Usage

MAX_COUNT = 2**53  # a number beyond it is no count of tokens, and no database column holds it


def read_usage(chunk: JsonObject) -> Usage | None:
    """Return the usage *chunk* tells, None if it tells none.

    ``prompt_tokens`` includes cached ones, as hango counts.  Groq hides it in ``x_groq``, DeepSeek has
    its own word for cached tokens.
    """
    usage = _object(chunk, "usage") or _object(_object(chunk, "x_groq"), "usage")
    if not usage:
        return None
    sent, made = _object(usage, "prompt_tokens_details"), _object(usage, "completion_tokens_details")
    return Usage(
        input_tokens=_count(usage, "prompt_tokens"),
        output_tokens=_count(usage, "completion_tokens"),
        cache_read_input_tokens=_count(sent, "cached_tokens")
        or _count(usage, "prompt_cache_hit_tokens"),
        cache_write_input_tokens=_count(sent, "cache_write_tokens"),
        reasoning_output_tokens=_count(made, "reasoning_tokens"),
    )


def _object(parent: JsonObject, key: str) -> JsonObject:
    value = parent.get(key)
    return value if isinstance(value, Mapping) else {}


def _count(parent: JsonObject, key: str) -> int:
    value = parent.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value <= MAX_COUNT else 0
