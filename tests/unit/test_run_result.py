"""What a gate is asked about and what it said, read off the transcript."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hango import RunResult, ToolCall
from hango.agent.completion import (
    CUT_SHORT,
    MAX_REASON,
    UNSPECIFIED,
    Rejections,
    feedback,
    rejections,
    result_of,
)
from hango.codec import blocks_from_json, blocks_to_json, clean_json, cut_text
from hango.domain import (
    Block,
    NewMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
    new_id,
)

from support.checked_transcript import CheckedTranscript

RUN, OTHER = new_id(), new_id()
ASKED = NewMessage("user", (TextBlock("do it"),), RUN, 0)
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=50)


def stored(*messages: NewMessage) -> CheckedTranscript:
    """Return a transcript of *messages*."""
    transcript = CheckedTranscript(run_id=RUN)
    transcript.store(messages)
    return transcript


def said(turn: int, *blocks: Block, run: UUID = RUN) -> NewMessage:
    """Return an answer."""
    return NewMessage("assistant", blocks, run, turn)


def replied(turn: int, *blocks: Block, synthetic: bool = False, run: UUID = RUN) -> NewMessage:
    """Return what followed an answer."""
    return NewMessage("user", blocks, run, turn, synthetic=synthetic)


def read(transcript: CheckedTranscript) -> RunResult:
    """Return what the run has come to."""
    return result_of(transcript.messages, RUN, usage=Usage(7, 3), turns=2)


# --- what it said ---------------------------------------------------------------------------


@pytest.mark.rule(24)
def test_the_feedback_is_one_sentence_and_a_request() -> None:
    """Word for word; the model may have been told so before."""
    assert feedback("no tests", ()) == (
        TextBlock("Your work did not verify: no tests. Fix it and finish."),
    )


@pytest.mark.rule(14)
@pytest.mark.rule(24)
def test_calls_that_never_ran_are_answered_before_the_feedback() -> None:
    """In request order, as errors that say nothing happened."""
    answer = (TextBlock("so"), ToolUseBlock("a", "buy"), ToolUseBlock("b", "buy", raw_input='{"x'))
    assert feedback("no tests", answer) == (
        ToolResultBlock("a", CUT_SHORT, is_error=True),
        ToolResultBlock("b", CUT_SHORT, is_error=True),
        TextBlock("Your work did not verify: no tests. Fix it and finish."),
    )


@pytest.mark.rule(24)
@given(
    st.lists(
        st.one_of(
            ANY_TEXT,
            st.just(". Fix it and finish."),
            st.just("Your work did not verify: "),
            st.just("x. Fix it and finish.. Fix it and finish."),
            st.just("x" * 5000),
        ),
        max_size=4,
    )
)
def test_reasons_survive_the_transcript(reasons: list[str]) -> None:
    """What was told and stored reads back as what the verifier said, and how often."""
    cleaned = [cut_text(reason, MAX_REASON) or UNSPECIFIED for reason in reasons]
    messages = [ASKED]
    for turn, reason in enumerate(cleaned, 1):
        blocks = feedback(reason, (ToolUseBlock("a", "buy"),))
        kept = blocks_from_json(clean_json(blocks_to_json(blocks)))  # as the database has it
        messages += [said(turn, TextBlock("done")), replied(turn, *kept, synthetic=True)]
    expected = Rejections(len(cleaned), cleaned[-1]) if cleaned else Rejections()
    assert rejections(stored(*messages).messages, RUN) == expected


@pytest.mark.rule(24)
def test_only_what_the_runs_own_gate_said_is_a_rejection() -> None:
    """Not results of tools, not other runs, not what people wrote, nor what hango said at the end."""
    words = feedback("no tests", ())
    transcript = stored(
        said(1, ToolUseBlock("a", "buy"), run=OTHER),
        replied(1, *words, synthetic=True, run=OTHER),
        NewMessage("user", words),
        NewMessage("user", words, RUN, 0),
        said(1, ToolUseBlock("a", "buy")),
        replied(1, ToolResultBlock("a", "Your work did not verify: x. Fix it and finish.")),
        NewMessage("assistant", words, RUN, 2, synthetic=True),
    )
    assert rejections(transcript.messages, RUN) == Rejections()


@pytest.mark.rule(24)
def test_rejections_are_told_in_one_line() -> None:
    """With their number and the last reason; none is told as nothing."""
    none = Rejections()
    twice = none.plus("no tests").plus("no docs")
    assert twice == Rejections(2, "no docs")
    assert str(twice) == "completion.verify failed 2×: no docs"  # noqa: RUF001 - a times sign
    assert str(none) == ""


# --- what it is asked about -----------------------------------------------------------------


@pytest.mark.rule(24)
def test_a_result_is_all_that_the_run_did() -> None:
    """Over all attempts, in the order of the calls; the text is that of the last answer."""
    transcript = stored(
        said(1, ToolUseBlock("x", "old"), run=OTHER),
        replied(1, ToolResultBlock("x", "old"), run=OTHER),
        ASKED,
        said(1, TextBlock("let me"), ToolUseBlock("a", "buy", {"n": 1}), ToolUseBlock("b", "look")),
        replied(1, ToolResultBlock("a", "denied: no", is_error=True), ToolResultBlock("b", "tea")),
        said(2, TextBlock("done")),
        replied(2, *feedback("no tests", ()), synthetic=True),
        said(3, ToolUseBlock("a", "buy", {"n": 2})),
        replied(3, ToolResultBlock("a", "bought", for_user="bought it")),
        said(4, ThinkingBlock("hm"), TextBlock("really "), TextBlock("done")),
    )
    result = read(transcript)
    assert result.text == "really done"
    assert result.tool_calls == (
        ToolCall("buy", {"n": 1}, "denied: no", is_error=True),
        ToolCall("look", {}, "tea", is_error=False),
        ToolCall("buy", {"n": 2}, "bought", is_error=False),
    )
    assert (result.usage, result.turns) == (Usage(7, 3), 2)
    assert result.messages == tuple(transcript.messages[2:])


@pytest.mark.rule(24)
def test_calls_of_one_id_keep_their_own_results() -> None:
    """Some servers number calls anew in each answer, or not at all."""
    transcript = stored(
        ASKED,
        said(1, ToolUseBlock("a", "one"), ToolUseBlock("a", "two")),
        replied(1, ToolResultBlock("a", "first"), ToolResultBlock("a", "second")),
        said(2, ToolUseBlock("a", "three")),
        replied(2, ToolResultBlock("a", "third")),
    )
    outputs = [(call.name, call.output) for call in read(transcript).tool_calls]
    assert outputs == [("one", "first"), ("two", "second"), ("three", "third")]


@pytest.mark.rule(24)
@pytest.mark.parametrize(
    ("messages", "text", "outputs"),
    [
        ([], "", []),
        ([ASKED], "", []),
        ([ASKED, said(1)], "", []),
        ([ASKED, said(1, ToolUseBlock("a", "buy"))], "", []),
        (
            [
                ASKED,
                said(1, TextBlock("so"), ToolUseBlock("a", "buy")),
                replied(1, *feedback("no", (ToolUseBlock("a", "buy"),)), synthetic=True),
            ],
            "so",
            [CUT_SHORT],
        ),
    ],
    ids=["nothing", "input", "silence", "cut short", "cut short and rejected"],
)
def test_a_run_that_has_come_to_little_has_a_result_too(
    messages: Sequence[NewMessage], text: str, outputs: list[str]
) -> None:
    """A call counts once it is answered, whatever the answer."""
    result = read(stored(*messages))
    assert (result.text, [call.output for call in result.tool_calls]) == (text, outputs)


@pytest.mark.rule(24)
def test_what_is_done_to_a_result_changes_nothing_stored() -> None:
    """Neither its calls nor its messages are the transcript's own."""
    transcript = stored(
        ASKED,
        said(1, ToolUseBlock("a", "buy", {"items": [{"n": 1}]})),
        replied(1, ToolResultBlock("a", "bought")),
    )
    before = copy.deepcopy(transcript.messages)
    result = read(transcript)
    arguments = cast("dict[str, list[dict[str, int]]]", result.tool_calls[0].args)
    arguments["items"][0]["n"] = 5
    arguments.clear()
    call = result.messages[1].content[0]
    assert isinstance(call, ToolUseBlock)
    cast("dict[str, object]", call.input)["more"] = True
    assert transcript.messages == before
    assert read(transcript).tool_calls[0].args == {"items": [{"n": 1}]}
