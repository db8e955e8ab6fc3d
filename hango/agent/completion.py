"""Completion gates: did it?

Rule: a gate is asked about a run that is done, and only about that; it passes on ``True`` alone, and
what it says otherwise is told to the model, which tries again, a bounded number of times.  All that
a gate is asked about is read off the transcript, so that a crash changes nothing.  Used by the loop.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeAlias, cast
from uuid import UUID

import attrs

from hango.agent.callbacks import Raised, call_user_function, exact_str
from hango.codec import cut_text
from hango.domain import (
    Block,
    JsonObject,
    Message,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
)
from hango.errors import InvalidInput, VerifierError
from hango.safe_errors import describe, format_frames
from hango.threads import Threads

MAX_REASON = 1000  # bytes of what a verifier found
UNSPECIFIED = "unspecified"
CUT_SHORT = "not run: the answer that asked for it was cut short"
_BEFORE, _AFTER = "Your work did not verify: ", ". Fix it and finish."

_THREADS = Threads()  # of verifiers; see those of guardrails
_log = logging.getLogger(__name__)


@attrs.frozen
class ToolCall:
    """A tool call that was answered.

    Attributes:
        args: as the model gave them; empty when they were no JSON object.
        output: what the model was told of it.
        is_error: whether that was an error; a denied call is one.
    """

    name: str
    args: JsonObject
    output: str
    is_error: bool


@attrs.frozen
class RunResult:
    """What a run has come to, over all its attempts.

    Attributes:
        text: of its last answer.
        tool_calls: in the order they were asked for.
        usage: of all its turns.
        turns: answers of the model.
        messages: of the run, oldest first; the first is what it was asked.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = attrs.field(factory=Usage)
    turns: int = 0
    messages: tuple[Message, ...] = attrs.field(default=(), repr=False)


Verdict: TypeAlias = tuple[bool, str]
"""Whether the work is complete, and if not, why; the reason is told to the model."""

Verifier: TypeAlias = Callable[[RunResult], Verdict | Awaitable[Verdict]]
"""Judges a run.  Async or sync; a sync one runs in a thread.  It may be asked again after a crash."""


@attrs.frozen
class Completion:
    """A gate that a run which says it is done has to pass.

    Attributes:
        verify: judges the run.
        max_attempts: how often the model may say that it is done; at least 1.
    """

    verify: Verifier
    max_attempts: int

    def check(self) -> None:
        """Refuse a gate that cannot be used.

        Raises:
            InvalidInput: *verify* cannot be called, or *max_attempts* is not an int of at least 1.
        """
        if not callable(self.verify):
            raise InvalidInput("must be callable", field="completion.verify")
        if type(self.max_attempts) is not int or self.max_attempts < 1:
            raise InvalidInput("must be an integer of at least 1", field="completion.max_attempts")


async def judge(verify: Verifier, result: RunResult) -> str | None:
    """Return why *result* is not complete, cleaned and bounded; None when it is.

    Cancelled midway, nothing comes back.

    Raises:
        VerifierError: *verify* raised, or answered anything but ``(bool, str)``.
    """
    answer = await call_user_function(verify, result, _THREADS)
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
    """Return the verdict that *answer* is; None when it is none, whatever it says of itself."""
    if not issubclass(type(answer), tuple):
        return None
    match tuple.__getitem__(cast("tuple[object, ...]", answer), slice(None)):
        case (True | False as passed, said) if (reason := exact_str(said)) is not None:
            return passed, reason
    return None


# --- what is told to the model, and read off the transcript ------------------------------------


def feedback(reason: str, answer: Sequence[Block]) -> tuple[Block, ...]:
    """Return what the model is told after an attempt that did not verify.

    Calls in its *answer* (blocks) that never ran, since it was cut short, are answered first.
    """
    results = (
        ToolResultBlock(block.id, CUT_SHORT, is_error=True)
        for block in answer
        if isinstance(block, ToolUseBlock)
    )
    return (*results, TextBlock(_BEFORE + reason + _AFTER))


@attrs.frozen
class Rejections:
    """How often a run did not verify, and why the last time."""

    count: int = 0
    reason: str = ""

    def plus(self, reason: str) -> Rejections:
        """Count one more."""
        return Rejections(self.count + 1, reason)

    def __str__(self) -> str:
        """Say it in one line; empty when there was none."""
        said = f"completion.verify failed {self.count}×: {self.reason}"  # noqa: RUF001 - a times sign
        return said if self.count else ""


def rejections(messages: Iterable[Message], run_id: UUID) -> Rejections:
    """Return what a run was told of its attempts so far.

    Nothing else is synthetic and a user message of a live run: what is repaired has ended.
    """
    describe = [
        message
        for message in messages
        if message.run_id == run_id and message.role == "user" and message.turn and message.synthetic
    ]
    if not describe:
        return Rejections()
    return Rejections(len(describe), _text(describe[-1]).removeprefix(_BEFORE).removesuffix(_AFTER))


def result_of(messages: Iterable[Message], run_id: UUID, *, usage: Usage, turns: int) -> RunResult:
    """Return what a run has come to, as its stored messages tell."""
    # a copy, so that a verifier cannot change what is stored
    own = copy.deepcopy(tuple(message for message in messages if message.run_id == run_id))
    replies = {message.turn: message for message in own if message.role == "user"}
    answers = [message for message in own if message.role == "assistant"]
    calls = tuple(
        ToolCall(call.name, call.input, result.content, result.is_error)
        for message in answers
        for call, result in _answered(message, replies.get(message.turn))
    )
    return RunResult(_text(answers[-1]) if answers else "", calls, usage, turns, own)


def _answered(asking: Message, reply: Message | None) -> Iterable[tuple[ToolUseBlock, ToolResultBlock]]:
    """Pair calls with their results: both are in request order, so that ids need not be unique."""
    calls = [block for block in asking.content if isinstance(block, ToolUseBlock)]
    results = [block for block in reply.content if isinstance(block, ToolResultBlock)] if reply else []
    return zip(calls, results, strict=False)  # an answer that was cut short has no results


def _text(message: Message) -> str:
    return "".join(block.text for block in message.content if isinstance(block, TextBlock))


# --- the verifier that comes with hango -------------------------------------------------------


def all_todos_done(result: RunResult) -> Verdict:
    """Judge whether all that the run has put on its list with ``todowrite`` is completed.

    It looks at the calls that succeeded.  Completed means exactly ``true``.  A new list replaces the
    old one, but an empty one does not while anything is open: giving up is not completing.  A run
    that never made a list passes.
    """
    plan: Sequence[object] = ()
    for call in result.tool_calls:
        todos = call.args.get("todos")
        if call.name == "todowrite" and not call.is_error and isinstance(todos, list):
            plan = todos or plan
    left = _open(plan)
    return not left, f"{len(left)} item(s) still open: {'; '.join(left)}" if left else ""


def _open(todos: Sequence[object]) -> list[str]:
    """Return the texts of what is not completed."""
    return [
        str(todo.get("text", "")) if isinstance(todo, Mapping) else str(todo)
        for todo in todos
        if not (isinstance(todo, Mapping) and todo.get("completed") is True)
    ]
