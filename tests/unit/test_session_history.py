"""What the loop keeps of a session: each message is looked at once, and what is wrong is not kept."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.engine import NoDelayProvider
from hango.agent import NULL_SINK, ExecutionOptions, SessionHistory
from hango.agent.memory import MemoryTranscript
from hango.agent.prompt import Prompt, repair_history
from hango.domain import (
    Block,
    Message,
    MessageRole,
    NewMessage,
    OpaqueBlock,
    PromptMessage,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    new_id,
)

from support.checked_transcript import CheckedTranscript
from support.loop_bench import Bench

HI, CALL = TextBlock("hi"), ToolUseBlock("a", "get_time")
MINE = OpaqueBlock("mine", {"type": "search"})
RUN, OTHER = new_id(), new_id()

ids = st.sampled_from(["", "a", "b"])
blocks: st.SearchStrategy[Block] = st.one_of(
    st.just(TextBlock("hi")),
    st.just(TextBlock(" ")),
    st.builds(ToolUseBlock, ids, st.just("get_time")),
    st.builds(ToolResultBlock, ids, st.just("noon")),
)
roles: st.SearchStrategy[MessageRole] = st.sampled_from(["user", "assistant"])
conversations = st.lists(st.builds(PromptMessage, roles, st.lists(blocks, max_size=4).map(tuple)))


@pytest.mark.rule(14)
@given(conversations)
def test_a_prompt_that_grew_is_the_one_made_at_once(conversation: list[PromptMessage]) -> None:
    """Whatever was asked for on the way, and whether or not the last message was stored yet."""
    prompt = Prompt("mine")
    for number, message in enumerate(conversation, 1):
        if message.role == "user":
            ahead = prompt.messages(message.content)
            assert ahead == repair_history(conversation[:number], "mine")
        prompt.add(message.role, message.content)
        assert prompt.messages() == repair_history(conversation[:number], "mine")


def stored(*messages: NewMessage) -> Sequence[Message]:
    """Return *messages* as a session's."""
    transcript = CheckedTranscript()
    transcript.store(messages)
    return transcript.messages


def test_a_history_begins_anew_when_the_messages_are_others() -> None:
    """After a failover that lost commits, the same places hold other messages, or none."""
    history = SessionHistory()
    first = stored(NewMessage("user", (HI,), RUN, 0), NewMessage("assistant", (CALL,), RUN, 1))
    other = stored(NewMessage("user", (HI,), OTHER, 0), NewMessage("assistant", (HI,), OTHER, 1))
    for messages, run in ((first, RUN), (other, OTHER), (first[:1], RUN), (first, RUN)):
        sent = history.prompt(messages, "mine")
        assert sent == SessionHistory().prompt(messages, "mine")
        assert history.of_run(run) == list(messages)


def test_a_history_is_repaired_for_the_provider_it_is_sent_to() -> None:
    """Another provider gets no opaque blocks of the first; the first gets them again."""
    history = SessionHistory()
    messages = stored(NewMessage("user", (HI,)), NewMessage("assistant", (MINE, HI)))
    for provider, content in (("mine", (MINE, HI)), ("other", (HI,)), ("mine", (MINE, HI))):
        assert history.prompt(messages, provider)[1].content == content


def test_only_the_latest_run_has_messages_of_its_own() -> None:
    """Repairs of an earlier run, and messages without one, do not end it."""
    history = SessionHistory()
    repairs = [NewMessage("assistant", (CALL,), OTHER, 1), NewMessage("user", (HI,), OTHER, 1)]
    own = [NewMessage("user", (HI,), RUN, 0), NewMessage("assistant", (HI,), RUN, 1)]
    messages = stored(*repairs, NewMessage("user", (HI,)), own[0], NewMessage("user", (HI,)), own[1])
    history.follow(messages[:3])
    assert [history.of_run(RUN), [m.turn for m in history.of_run(OTHER)]] == [(), [1, 1]]
    history.follow(messages)
    assert [[m.turn for m in history.of_run(RUN)], history.of_run(OTHER)] == [[0, 1], ()]


async def steps_of_a_run(earlier: int) -> int:
    """Return how many functions a run calls in a session that has *earlier* messages and a history."""
    loop = Bench().loop()
    loop.transcript, loop.provider = MemoryTranscript(), NoDelayProvider(turns=5)
    for _ in range(earlier // 2):
        await loop.transcript.append([NewMessage("user", (HI,)), NewMessage("assistant", (HI,))])
    loop.history.prompt(loop.transcript.messages, loop.provider.name)
    steps = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        await loop.run(new_id(), (HI,), NULL_SINK, ExecutionOptions())
    finally:
        sys.setprofile(None)
    return steps


async def test_a_turn_costs_the_same_in_a_long_session() -> None:
    """Counted in calls of functions: none is made for a message that was there before."""
    short, long = await steps_of_a_run(2), await steps_of_a_run(2000)
    assert short > 1000
    assert long < 1.1 * short
