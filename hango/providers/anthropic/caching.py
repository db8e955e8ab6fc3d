"""Markers of the parts of a request that the server keeps, to read them cheaply the next time.  Pure.

The server keeps a prefix of tools, system and messages up to each marker, of which a request may have
four.  A later request finds a prefix that ends at most 20 blocks before one of its markers
(https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

MARKER: Mapping[str, object] = {"type": "ephemeral"}
STEP = 15  # blocks; well within the 20 that the server looks back
_MARKABLE = frozenset({"text", "tool_use", "tool_result"})


def mark_messages(contents: Sequence[Sequence[dict[str, object]]]) -> None:
    """Mark the last block, and one before it at which the next look-back begins.

    That is where the request before this one ended, if it is far away: an answer with many calls has
    more blocks than the server looks back.  Else it is some fifteen blocks earlier.
    """
    blocks = [block for content in contents for block in content]
    _mark_up_to(blocks, len(blocks))
    before = sum(map(len, contents[:-2]))
    _mark_up_to(blocks, min(before, len(blocks) - STEP))


def _mark_up_to(blocks: Sequence[dict[str, object]], end: int) -> None:
    """Mark the last of the first *end* blocks that can have a marker."""
    for block in reversed(blocks[: max(end, 0)]):
        if block["type"] in _MARKABLE:
            block["cache_control"] = MARKER
            return
