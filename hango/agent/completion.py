"""Completion gates: a run that is done has to pass a verifier.

Rule: only ``True`` passes; otherwise the verifier's reason is sent to the model as feedback, up to
`max_attempts` times.  A verifier is asked about the stored transcript, so a crash changes nothing.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeAlias, cast
from uuid import UUID

import attrs

from hango.agent.callbacks import Raised, TenantThreads, call_user_function, exact_str
from hango.codec import cut_text
from hango.domain import (
    Block,
    JsonObject,
    Message,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
    joined_text,
)
from hango.domain.todos import read_todo
from hango.domain.tools import UNKNOWN_TOOL
from hango.errors import InvalidInput, VerifierError
from hango.safe_errors import describe, format_frames

MAX_REASON = 1000  # bytes of a verifier's reason
UNSPECIFIED = "unspecified"
CUT_SHORT = "not run: the answer that requested it was cut short"
_BEFORE, _AFTER = "Your work did not verify: ", ". Fix it and finish."

_log = logging.getLogger(__name__)


@attrs.frozen
class ToolCall:
    """A tool call and its result.

    Attributes:
        name: of the tool.
        args: as the model wrote them; empty if they were not a JSON object.
        output: the result as the model got it.
        is_error: whether the result is an error; a denied call is one.
    """

    name: str
    args: JsonObject
    output: str
    is_error: bool


@attrs.frozen
class RunResult:
    """What a run has done, over all its attempts.

    Attributes:
        text: of its last answer.
        tool_calls: in request order.
        usage: tokens of all its turns.
        turns: answers of the model.
        messages: of the run, oldest first; the first is its input.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = attrs.field(factory=Usage)
    turns: int = 0
    messages: tuple[Message, ...] = attrs.field(default=(), repr=False)


Verdict: TypeAlias = tuple[bool, str]
"""Whether the work is complete, and if not, why; the model gets the reason."""

Verifier: TypeAlias = Callable[[RunResult], Verdict | Awaitable[Verdict]]
"""Decides whether a run is complete.  Async or sync; a sync one runs in a thread.

After a crash it may be called again about the same answer.
"""


@attrs.frozen
class Completion:
    """A gate that a run has to pass before it is done.

    Attributes:
        verify: decides whether the run is complete.
        max_attempts: answers that may claim to be the last; at least 1.
    """

    verify: Verifier
    max_attempts: int

    def check(self) -> None:
        """Check the gate.

        Raises:
            InvalidInput: *verify* cannot be called, or *max_attempts* is not an int of at least 1.
        """
        if not callable(self.verify):
            raise InvalidInput("must be callable", field="completion.verify")
        if type(self.max_attempts) is not int or self.max_attempts < 1:
            raise InvalidInput("must be an integer of at least 1", field="completion.max_attempts")


async def judge(verify: Verifier, result: RunResult, threads: TenantThreads) -> str | None:
    """Return why *result* is not complete, cleaned and bounded; None if it is.

    A sync *verify* runs in *threads*.  Cancelled midway, nothing is returned.

    Raises:
        VerifierError: *verify* raised, or returned anything but ``(bool, str)``.
    """
    answer = await call_user_function(verify, result, threads)
    if type(answer) is Raised:
        _log.warning("the verifier raised %s", format_frames(answer.error))
        raise VerifierError(describe(answer.error))
    match _verdict(answer):
        case True, _:
            return None
        case False, reason:
            return cut_text(reason, MAX_REASON) if reason.strip() else UNSPECIFIED
    raise VerifierError(f"a verifier must return (bool, str), but it returned {type(answer).__name__}")


def _verdict(answer: object) -> Verdict | None:
    """Return *answer* as a verdict, by its real types; None if it is not one."""
    if not issubclass(type(answer), tuple):
        return None
    match tuple.__getitem__(cast("tuple[object, ...]", answer), slice(None)):
        case (True | False as passed, said) if (reason := exact_str(said)) is not None:
            return passed, reason
    return None


# --- feedback to the model, and what the transcript says ---------------------------------------


def feedback(reason: str, answer: Sequence[Block]) -> tuple[Block, ...]:
    """Return the message to the model after an attempt that did not verify.

    If its *answer* was cut short, it may have calls that did not run; they get results first.
    """
    results = (
        ToolResultBlock(block.id, CUT_SHORT, is_error=True)
        for block in answer
        if isinstance(block, ToolUseBlock)
    )
    return (*results, TextBlock(_BEFORE + reason + _AFTER))


@attrs.frozen
class Rejections:
    """How often a run did not verify.

    Attributes:
        count: rejected attempts.
        reason: of the last one.
    """

    count: int = 0
    reason: str = ""

    def plus(self, reason: str) -> Rejections:
        """Count one more attempt."""
        return Rejections(self.count + 1, reason)

    def __str__(self) -> str:
        """Return one line for people; empty if there was none."""
        line = f"completion.verify failed {self.count}×: {self.reason}"  # noqa: RUF001 - a times sign
        return line if self.count else ""


def rejections(messages: Iterable[Message], run_id: UUID) -> Rejections:
    """Return how often a run was rejected so far.

    Its feedback messages are the only synthetic user messages of a run that has not ended.
    """
    rejected = [
        message
        for message in messages
        if message.run_id == run_id and message.role == "user" and message.turn and message.synthetic
    ]
    if not rejected:
        return Rejections()
    reason = joined_text(rejected[-1].content).removeprefix(_BEFORE).removesuffix(_AFTER)
    return Rejections(len(rejected), reason)


def result_of(messages: Iterable[Message], run_id: UUID, *, usage: Usage, turns: int) -> RunResult:
    """Return what a run has done, according to its stored messages."""
    # a copy, so that a verifier cannot change what is stored
    own = copy.deepcopy(tuple(message for message in messages if message.run_id == run_id))
    replies = {message.turn: message for message in own if message.role == "user"}
    answers = [message for message in own if message.role == "assistant"]
    calls = tuple(
        ToolCall(call.name, call.input, result.content, result.is_error)
        for message in answers
        for call, result in _with_results(message, replies.get(message.turn))
    )
    return RunResult(joined_text(answers[-1].content) if answers else "", calls, usage, turns, own)


def _with_results(
    answer: Message, reply: Message | None
) -> Iterable[tuple[ToolUseBlock, ToolResultBlock]]:
    """Pair calls with their results: both are in request order, so ids need not be unique."""
    calls = [block for block in answer.content if isinstance(block, ToolUseBlock)]
    results = [block for block in reply.content if isinstance(block, ToolResultBlock)] if reply else []
    return zip(calls, results, strict=False)  # an answer that was cut short has no results


# --- the verifier that comes with hango -------------------------------------------------------


def all_todos_done(result: RunResult) -> Verdict:
    """Pass if every item that the run put on its list with ``todowrite`` is completed.

    Only successful calls count, and only ``true`` is completed.  A new list replaces the old one;
    an empty one does not while an item is open.  A run that never called it passes, also if it has no
    such tool; one whose every call failed does not.
    """
    tried, plan = False, None
    for call in result.tool_calls:
        todos = call.args.get("todos")
        if call.name != "todowrite" or call.output.startswith(UNKNOWN_TOOL):
            continue
        tried = True
        if not call.is_error and isinstance(todos, list):
            plan = todos or plan or []
    if plan is None:
        return not tried, "the list was never written" if tried else ""
    left = _open(plan)
    return not left, f"{len(left)} item(s) still open: {'; '.join(left)}" if left else ""


def _open(todos: Sequence[object]) -> list[str]:
    """Return the texts of the items that are not completed."""
    return [text for text, completed in map(_read, todos) if not completed]


def _read(item: object) -> tuple[str, bool]:
    """Return the text of an item and whether it is completed; what is no item is not."""
    try:
        todo = read_todo(item)
    except ValueError:
        return str(item.get("text", "")) if isinstance(item, Mapping) else str(item), False
    return todo.text, todo.completed
