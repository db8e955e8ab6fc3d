"""Mending: whatever is stored, what is sent is what the strictest API takes."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hango.agent.prompt import INTERRUPTED, NOTHING, repair_history
from hango.domain import (
    Block,
    OpaqueBlock,
    PromptMessage,
    ProviderRequest,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from hango.domain.tools import NO_OUTPUT
from hango.testing import check_request


def user(*content: Block) -> PromptMessage:
    """Return a user message."""
    return PromptMessage("user", content)


def assistant(*content: Block) -> PromptMessage:
    """Return an assistant message."""
    return PromptMessage("assistant", content)


def call(call_id: str) -> ToolUseBlock:
    """Return a call."""
    return ToolUseBlock(call_id, "get_time", {})


def result(call_id: str, content: str = "noon") -> ToolResultBlock:
    """Return a result."""
    return ToolResultBlock(call_id, content)


HI = TextBlock("hi")

_LENT = (ThinkingBlock, RedactedThinkingBlock)


def refused(messages: Sequence[PromptMessage]) -> list[Block | str]:
    """Return why an API would not take *messages*: its own check, and what no block may carry."""
    request = ProviderRequest("m", "", tuple(messages), (), turn=1)
    reasons: list[Block | str] = []
    try:
        check_request(request)
    except AssertionError as error:
        reasons.append(str(error))
    reasons += [m.content[-1] for m in messages if m.content and isinstance(m.content[-1], _LENT)]
    return [*reasons, *(block for m in messages for block in m.content if _for_people(block))]


def _for_people(block: Block) -> bool:
    """Return whether *block* carries what no provider, or not this one, is to see."""
    match block:
        case ThinkingBlock(signature=signature):
            return not signature
        case ToolUseBlock(raw_input=raw):
            return raw is not None
        case ToolResultBlock(content=content, for_user=for_user):
            return for_user is not None or not content.strip()
        case OpaqueBlock(provider=owner):
            return owner != "mine"
    return False


texts = st.sampled_from(["", " ", "\n", "hi", "done \n"])
ids = st.sampled_from(["", "a", "b", "c", "call_0", "call_1", "odd id", "x" * 65])
names = st.sampled_from(["get_time", "", "get time", "n" * 70])
blocks: st.SearchStrategy[Block] = st.one_of(
    st.builds(TextBlock, texts),
    st.builds(ThinkingBlock, texts, st.sampled_from(["", "c2ln"])),
    st.builds(RedactedThinkingBlock, st.just("ZGF0YQ==")),
    st.builds(
        ToolUseBlock,
        ids,
        names,
        st.just({}),
        st.sampled_from([None, "{"]),
    ),
    st.builds(ToolResultBlock, ids, texts, st.booleans(), st.sampled_from([None, "seen"])),
    st.builds(OpaqueBlock, st.sampled_from(["mine", "other"]), st.just({"type": "search"})),
)
roles = st.sampled_from(["user", "assistant"])
contents = st.lists(blocks, max_size=5).map(tuple)
thoughts = st.text("aé東🙂\n ", max_size=5)
histories = st.lists(st.builds(PromptMessage, roles, contents), max_size=8)


@st.composite
def valid_histories(draw: st.DrawFn) -> list[PromptMessage]:
    """Return a conversation as it is when nothing ever went wrong."""
    history = [user(HI)]
    for turn in range(draw(st.integers(0, 4))):
        calls = [call(f"t{turn}-{n}") for n in range(draw(st.integers(0, 3)))]
        thinking = [ThinkingBlock(draw(thoughts), "c2ln")] if draw(st.booleans()) else []
        words = [TextBlock("so")] if not calls or draw(st.booleans()) else []
        more = [HI] if not calls or draw(st.booleans()) else []
        history.append(assistant(*thinking, *words, *calls))
        history.append(user(*(result(c.id) for c in calls), *more))
    return history


@pytest.mark.rule(14)
@given(histories)
def test_any_history_is_sent_as_the_strictest_api_takes_it(history: list[PromptMessage]) -> None:
    """B01-B04, B08, B09, B14: whatever is stored, the request is valid."""
    assert refused(repair_history(history, "mine")) == []


@pytest.mark.rule(14)
@given(histories)
def test_mending_twice_changes_nothing_more(history: list[PromptMessage]) -> None:
    """Mending is idempotent."""
    once = repair_history(history, "mine")
    assert repair_history(once, "mine") == once


@pytest.mark.rule(14)
@given(valid_histories())
def test_a_valid_history_is_sent_as_it_is(history: list[PromptMessage]) -> None:
    """B10: a valid history comes back equal, signed thinking byte for byte and in its place."""
    assert refused(history) == []
    assert repair_history(history, "mine") == tuple(history)


@pytest.mark.rule(14)
@given(histories, histories)
def test_a_growing_history_keeps_its_renamed_ids(
    history: list[PromptMessage], more: list[PromptMessage]
) -> None:
    """Ids made up for a request do not depend on what comes later, so caches keep their prefix."""
    joint = [user(HI), *more]
    before = [
        b for m in repair_history(history, "mine") for b in m.content if isinstance(b, ToolUseBlock)
    ]
    after = [b for m in repair_history([*history, *joint], "mine") for b in m.content]
    assert before == [b for b in after if isinstance(b, ToolUseBlock)][: len(before)]


@pytest.mark.rule(14)
@given(histories)
def test_nothing_that_can_be_sent_is_lost(history: list[PromptMessage]) -> None:
    """Texts and calls all arrive, in their order: only empty or foreign things are left out."""

    def told(messages: Sequence[PromptMessage]) -> list[str]:
        said = [b for m in messages for b in m.content if isinstance(b, TextBlock)]
        return [b.text for b in said if b.text.strip() and b.text != NOTHING]

    def asked(messages: Sequence[PromptMessage]) -> int:
        made = [m for m in messages if m.role == "assistant"]
        return sum(isinstance(b, ToolUseBlock) for m in made for b in m.content)

    sent = repair_history(history, "mine")
    assert told(sent) == told(history)
    assert asked(sent) == asked(history)


@pytest.mark.rule(14)
@pytest.mark.parametrize(
    ("history", "sent"),
    [
        pytest.param(
            [user(HI), assistant(call("a")), user(result("zzz"), result("a"), result("a", "again"))],
            [user(HI), assistant(call("a")), user(result("a"))],
            id="B02: an orphan, and a second result for one call",
        ),
        pytest.param(
            [user(result("a"), HI), assistant(HI), user(result("b"))],
            [user(HI), assistant(HI), user(TextBlock(NOTHING))],
            id="B02: results without any call",
        ),
        pytest.param(
            [user(HI), assistant(call("a"), call("b")), user(HI, result("b")), user(result("a"))],
            [user(HI), assistant(call("a"), call("b")), user(result("a"), result("b"), HI)],
            id="B04: results out of order, late and in two messages",
        ),
        pytest.param(
            [user(HI), assistant(call("a")), user(HI), assistant(HI), user(HI)],
            [
                user(HI),
                assistant(call("a")),
                user(ToolResultBlock("a", INTERRUPTED, is_error=True), HI),
                assistant(HI),
                user(HI),
            ],
            id="B03: an old call that never got a result",
        ),
        pytest.param(
            [
                user(HI),
                assistant(call("a")),
                user(result("a")),
                assistant(call("a")),
                user(result("a", "9")),
            ],
            [
                user(HI),
                assistant(call("a")),
                user(result("a")),
                assistant(call("a_2")),
                user(result("a_2", "9")),
            ],
            id="an id used again is renamed, with its result",
        ),
        pytest.param(
            [user(HI), assistant(call("a"), call("a")), user(result("a", "1"), result("a", "2"))],
            [
                user(HI),
                assistant(call("a"), call("a_2")),
                user(result("a", "1"), result("a_2", "2")),
            ],
            id="two calls of one id take two results",
        ),
        pytest.param(
            [user(HI), user(HI), assistant(HI), assistant(HI), user(HI)],
            [user(HI, HI), assistant(HI, HI), user(HI)],
            id="B14: neighbours of one role are joined",
        ),
        pytest.param(
            [assistant(HI), user(HI)],
            [user(TextBlock(NOTHING)), assistant(HI), user(HI)],
            id="the user begins",
        ),
        pytest.param(
            [user(HI), assistant(TextBlock("done \n"))],
            [user(HI), assistant(TextBlock("done \n")), user(TextBlock(NOTHING))],
            id="B09: the user ends",
        ),
        pytest.param([], [user(TextBlock(NOTHING))], id="nothing at all"),
        pytest.param(
            [user(HI), assistant(TextBlock(" "), TextBlock("")), user(TextBlock(""), HI)],
            [user(HI, HI)],
            id="B08: blank texts, and a message that is nothing else",
        ),
        pytest.param(
            [user(HI), assistant(HI, ThinkingBlock("hm", "c2ln")), user(HI)],
            [user(HI), assistant(HI), user(HI)],
            id="thinking that an answer cut short ended in",
        ),
        pytest.param(
            [user(HI), assistant(ThinkingBlock("hm"), RedactedThinkingBlock("ZA=="), HI), user(HI)],
            [user(HI), assistant(RedactedThinkingBlock("ZA=="), HI), user(HI)],
            id="B10: unsigned thinking",
        ),
        pytest.param(
            [user(HI), assistant(ToolUseBlock("a", "get time!", {}, "{")), user(result("a", " "))],
            [user(HI), assistant(ToolUseBlock("a", "get_time_", {})), user(result("a", NO_OUTPUT))],
            id="C05, C11: raw arguments, an odd name, a blank result",
        ),
        pytest.param(
            [user(HI), assistant(call("a")), user(ToolResultBlock("a", "x", for_user="y"))],
            [user(HI), assistant(call("a")), user(result("a", "x"))],
            id="what people see of a result",
        ),
        pytest.param(
            [user(HI, call("a")), assistant(HI, result("a"), OpaqueBlock("other", {})), user(HI)],
            [user(HI), assistant(HI), user(HI)],
            id="blocks in the wrong role, or of another provider",
        ),
    ],
)
def test_damage_is_mended(history: list[PromptMessage], sent: list[PromptMessage]) -> None:
    """Each kind of old damage, and what is sent of it."""
    assert repair_history(history, "mine") == tuple(sent)


def test_mending_leaves_the_stored_messages_alone() -> None:
    """The request is a copy."""
    history = [assistant(call("a"), call("a")), user(result("a"))]
    copy = [attrs.evolve(message) for message in history]
    repair_history(history, "mine")
    assert history == copy
