"""Assembles tool calls from the fragments of a stream.  Pure; for `answer` only.

A fragment is assigned by index, id and name together, since none of them can be trusted alone.  Servers
send no index at all, every index 0, an index that starts at 1, no id, an id on every fragment, one id
for all calls, a name repeated, arguments as an object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping

import attrs

from hango.call_ids import CallIds
from hango.codec import clean_text
from hango.domain import BlockStart, InputDelta, JsonObject, ProviderEvent, ToolUseBlock
from hango.domain.names import is_api_name
from hango.text import BracketReader, GrowingText, TextJoiner

MAX_INDEX = 10_000  # a larger index counts as absent
MAX_WIRE_ID = 256  # characters; a longer id does not go back as it came
# Fields that must go back with their call, or the next request is refused: thought signatures of Gemini
# (https://ai.google.dev/gemini-api/docs/thought-signatures), directly and behind LiteLLM.
RETURNED = ("extra_content", "provider_specific_fields")
# Models that write a call as text: {"name": "get_time", ...} or <function=get_time>
_NAME_WRITTEN = re.compile(r"""(?:"name"\s*:\s*"|<function=)([a-zA-Z0-9_-]{1,64})""")


@attrs.frozen
class CallFragment:
    """One element of ``delta.tool_calls``; missing and unusable parts are empty or None."""

    index: int | None
    id: str
    name: str
    arguments: str
    extra: JsonObject

    @classmethod
    def read(cls, value: JsonObject) -> CallFragment:
        """Read an element."""
        found = value.get("function")
        function: Mapping[str, object] = found if isinstance(found, dict) else {}
        extra = {key: value[key] for key in RETURNED if value.get(key) is not None}
        return cls(
            index=_index(value.get("index")),
            id=_text(value.get("id")),
            name=_text(function.get("name")),
            arguments=_arguments(function.get("arguments")),
            extra=extra,
        )


@attrs.define
class PendingCall:
    """One call so far.

    Attributes:
        block: index of its block in the answer.
        index: the index the server gave it first, None if it gave none.
        wire_id: the id from the server, which need not be unique.
        id: the id in hango; empty until the call's `BlockStart` has been yielded.
        text: its arguments.
        pending: those of its arguments that came before the name.
        _is_object: whether they are a JSON object; None while that is not known.
    """

    block: int
    index: int | None
    wire_id: str = ""
    id: str = ""
    name: str = ""
    text: GrowingText = attrs.field(factory=GrowingText)
    pending: GrowingText = attrs.field(factory=GrowingText)
    extra: dict[str, object] = attrs.field(factory=dict)
    joiner: TextJoiner = attrs.field(factory=TextJoiner)
    _brackets: BracketReader = attrs.field(factory=BracketReader, init=False)
    _is_object: bool | None = attrs.field(default=None, init=False)

    @property
    def to_send_back(self) -> JsonObject:
        """The fields that must go back with the call, may be empty.

        Some models read their own ids (``functions.get_time:0``), so an id goes back as it came, even
        if other APIs would not take it.
        """
        own = self.wire_id and not is_api_name(self.wire_id)
        sendable = len(self.wire_id) <= MAX_WIRE_ID and clean_text(self.wire_id) == self.wire_id
        return {"id": self.wire_id, **self.extra} if own and sendable else self.extra

    @property
    def blank(self) -> bool:
        """Whether it has no arguments."""
        return not str(self.text).strip()

    @property
    def complete(self) -> bool:
        """Whether its arguments are a whole JSON object; no arguments at all are not."""
        if not self._brackets.closed or self._brackets.more:
            return False
        if self._is_object is None:  # read once: servers that repeat names have it asked every time
            try:
                self._is_object = isinstance(json.loads(str(self.text)), dict)
            except (ValueError, RecursionError):
                self._is_object = False
        return self._is_object

    def add(self, text: str) -> None:
        """Add to its arguments."""
        self.text.add(text)
        self._brackets.read(text)
        if not self.id:
            self.pending.add(text)


@attrs.define
class CallAssembler:
    """All calls of one answer.

    Attributes:
        _first_block: the index of the first call's block; the others follow.
        _offered: names of the tools of the request.
    """

    _ids: CallIds
    _first_block: int
    _offered: Collection[str] = ()
    _slots: list[PendingCall] = attrs.field(factory=list)
    _by_index: dict[int, PendingCall] = attrs.field(factory=dict)
    _by_id: dict[str, PendingCall] = attrs.field(factory=dict)
    _last: PendingCall | None = None
    _blocks: set[int] = attrs.field(factory=set)
    _next_block: int = attrs.field(init=False)

    @_next_block.default
    def _first(self) -> int:
        return self._first_block

    @property
    def begun(self) -> bool:
        """Whether any call has come."""
        return bool(self._slots)

    def push(self, value: JsonObject) -> Iterator[ProviderEvent]:
        """Take one element of ``delta.tool_calls``; yields the new events, may be none."""
        fragment = CallFragment.read(value)
        slot = self._place(fragment)
        slot.wire_id = slot.wire_id or fragment.id
        slot.extra.update(fragment.extra)
        if fragment.name and (not slot.name or self._continues_name(slot, fragment.name)):
            slot.name += fragment.name
        yield from self._grow(slot, slot.joiner.push(fragment.arguments))

    def finish(self) -> Iterator[ProviderEvent]:
        """End the calls; one that never got a name begins now, and is answered as an unknown tool."""
        for slot in self._slots:
            if not slot.id and (slot.name or slot.wire_id or slot.pending):
                yield from self._begin(slot)
            if rest := slot.joiner.finish():
                yield from self._grow(slot, rest)

    def reject(self, generation: str, reason: str) -> None:
        """Take a call that the server could not parse.

        Its arguments are text that is no JSON object, so it is answered with an error, and the model
        may correct itself.
        """
        name = _NAME_WRITTEN.search(generation)
        slot = PendingCall(self._free_block(None), None, name=name[1] if name else "")
        slot.add(f"{reason}: {generation}")
        self._slots.append(slot)

    def begun_calls(self) -> list[PendingCall]:
        """Return the calls whose `BlockStart` has been yielded, in order."""
        return sorted((slot for slot in self._slots if slot.id), key=lambda slot: slot.block)

    def _grow(self, slot: PendingCall, text: str) -> Iterator[ProviderEvent]:
        slot.add(text)
        if slot.name and not slot.id and (slot.text or not self._is_part_of_name(slot.name)):
            yield from self._begin(slot)
        elif slot.id and text:
            yield InputDelta(slot.block, text)

    def _begin(self, slot: PendingCall) -> Iterator[ProviderEvent]:
        slot.id = self._ids.give(slot.wire_id)
        yield BlockStart(slot.block, ToolUseBlock(slot.id, slot.name))
        if slot.pending:
            yield InputDelta(slot.block, str(slot.pending))

    def _place(self, fragment: CallFragment) -> PendingCall:
        """Return the call *fragment* belongs to; a new one if there is none."""
        slot = self._candidate(fragment)
        if slot is None or self._is_another(slot, fragment):
            slot = PendingCall(self._free_block(fragment.index), fragment.index)
            self._slots.append(slot)
        if fragment.index is not None:
            self._by_index[fragment.index] = slot
        if fragment.id:
            self._by_id[fragment.id] = slot
        self._last = slot
        return slot

    def _candidate(self, fragment: CallFragment) -> PendingCall | None:
        named = self._by_id.get(fragment.id) if fragment.id else None
        if fragment.index is None:
            return named if fragment.id else self._last
        last = self._by_index.get(fragment.index)
        # calls that alternate at one index, told apart by their ids
        return named if named is not None and named.index == fragment.index else last

    def _free_block(self, index: int | None) -> int:
        """Reserve a block for a new call: by its index, or after all others."""
        wanted = self._first_block + index if index is not None else None
        block = self._next_block if wanted is None or wanted in self._blocks else wanted
        self._next_block = max(self._next_block, block + 1)
        self._blocks.add(block)
        return block

    def _is_another(self, slot: PendingCall, fragment: CallFragment) -> bool:
        """Return whether *fragment* begins another call than *slot*."""
        if fragment.id and slot.wire_id and fragment.id != slot.wire_id:
            return True
        if not (fragment.name and slot.name) or self._continues_name(slot, fragment.name):
            return False
        return fragment.name != slot.name or (slot.complete and bool(fragment.arguments))

    def _continues_name(self, slot: PendingCall, piece: str) -> bool:
        """Return whether *piece* is more of a name that came in pieces."""
        return not slot.id and self._is_part_of_name(slot.name, piece)

    def _is_part_of_name(self, begun: str, piece: str = "") -> bool:
        """Return whether *begun* is no tool, but with *piece* begins the name of one."""
        if begun in self._offered:
            return False
        return any(name.startswith(begun + piece) for name in self._offered)


def _index(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= MAX_INDEX else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _arguments(value: object) -> str:
    """Return arguments as text; a server that sends an object gets it written as JSON."""
    if value is None or value == {}:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
