"""Calls an earlier run left open: answered once, by neutral errors that can be stored."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hango.agent.history import dangling_call_results
from hango.agent.prompt import INTERRUPTED
from hango.domain import (
    Block,
    Message,
    MessageRole,
    NewMessage,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    new_id,
)

from support.checked_transcript import CheckedTranscript

OURS, OTHER = new_id(), new_id()
HI = TextBlock("hi")

ids = st.sampled_from(["a", "b", "c"])
blocks: st.SearchStrategy[Block] = st.one_of(
    st.just(HI),
    st.builds(ToolUseBlock, ids, st.just("get_time")),
    st.builds(ToolResultBlock, ids, st.just("x")),
)
roles = st.sampled_from(["user", "assistant"])
contents = st.lists(blocks, max_size=4).map(tuple)


def call(call_id: str) -> ToolUseBlock:
    """Return a call."""
    return ToolUseBlock(call_id, "get_time")


def result(call_id: str) -> ToolResultBlock:
    """Return a result."""
    return ToolResultBlock(call_id, "noon")


def stored(*messages: NewMessage) -> Sequence[Message]:
    """Return *messages* as a session's."""
    transcript = CheckedTranscript()
    transcript.store(messages)
    return transcript.messages


def new(
    role: MessageRole, *content: Block, run: UUID | None = OTHER, turn: int = 1, partial: bool = False
) -> NewMessage:
    """Return a message of a run's turn, or of the API."""
    return NewMessage(role, content, run, turn if run else None, partial=partial)


@pytest.mark.rule(14)
@pytest.mark.parametrize("partial", [False, True])
def test_a_dangling_tail_is_answered_with_neutral_errors(*, partial: bool) -> None:
    """B03: each open call gets an error result under the old run's key, blaming nobody."""
    asked = new("assistant", HI, call("a"), call("b"), turn=3, partial=partial)
    (message,) = dangling_call_results(stored(new("user", HI, turn=0), asked))
    assert message.content == (
        ToolResultBlock("a", "tool call interrupted", is_error=True),
        ToolResultBlock("b", "tool call interrupted", is_error=True),
    )
    assert (message.run_id, message.turn, message.role) == (OTHER, 3, "user")
    assert message.synthetic


@pytest.mark.rule(14)
def test_a_dangling_message_of_the_api_is_answered_without_a_run() -> None:
    """A call posted through the API has no run, and neither has its answer."""
    history = stored(
        new("user", HI, run=None), new("assistant", call("a"), run=None), new("user", HI, run=None)
    )
    (message,) = dangling_call_results(history)
    assert (message.run_id, message.turn) == (None, None)
    assert message.content == (ToolResultBlock("a", INTERRUPTED, is_error=True),)


@pytest.mark.rule(14)
def test_each_message_of_the_tail_is_answered_under_its_own_key() -> None:
    """Neighbouring assistant messages of the tail each get their own results, oldest first."""
    history = stored(new("assistant", call("a"), turn=2), new("assistant", call("b"), run=None))
    assert [(m.run_id, m.turn, len(m.content)) for m in dangling_call_results(history)] == [
        (OTHER, 2, 1),
        (None, None, 1),
    ]


@pytest.mark.rule(14)
@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([], id="an empty session"),
        pytest.param([new("assistant", HI)], id="no calls"),
        pytest.param([new("assistant", call("a")), new("user", result("a"))], id="all answered"),
        pytest.param(
            [new("assistant", call("a"), call("b")), new("user", result("a"))],
            id="the turn has a user message, and a second could not be stored",
        ),
        pytest.param(
            [new("assistant", call("a")), new("user", HI, run=None), new("assistant", HI, run=None)],
            id="older damage",
        ),
    ],
)
def test_only_the_tail_of_an_earlier_run_is_answered(messages: list[NewMessage]) -> None:
    """Nothing else is written: it is mended in the request, or re-driven."""
    assert dangling_call_results(stored(*messages)) == ()


@pytest.mark.rule(14)
@given(st.lists(st.tuples(roles, contents, st.sampled_from([OTHER, None])), max_size=6))
def test_repairing_twice_changes_nothing(
    session: list[tuple[MessageRole, tuple[Block, ...], UUID | None]],
) -> None:
    """Once its results are stored, a session has nothing left to answer, and they can be stored."""
    transcript = CheckedTranscript()
    transcript.store(
        NewMessage(role, content, run, None if run is None else turn)
        for turn, (role, content, run) in enumerate(session, 1)
    )
    transcript.store(dangling_call_results(transcript.messages))
    assert dangling_call_results(transcript.messages) == ()
