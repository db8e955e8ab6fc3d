"""Guardrails: what permits a call, what denies it, and that everything else denies it too."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from enum import StrEnum
from functools import partial
from typing import NoReturn, cast

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from hango import BeforeToolEvent, Guardrail
from hango.agent import guardrails
from hango.agent.callbacks import TenantThreads
from hango.agent.guardrails import ALLOW, MAX_REASON
from hango.codec import clean_text, cut_text
from hango.domain import ToolUseBlock

from support.deceptive_values import (
    DeceptiveStr,
    EqualsEverything,
    WithoutAttributes,
    WithoutClass,
    mimic_text,
)

CALL = ToolUseBlock("c1", "buy", {"item": {"name": "tea", "counts": [1, 2]}})
denial = partial(guardrails.denial, threads=TenantThreads())
NO_TEXT = "a guardrail must return None or a str, but it returned {}"


class Verdicts(StrEnum):
    """The answers of a guardrail that is written with care."""

    ALLOW = "allow"
    NO = "no"


def answering(answer: object) -> Guardrail:
    """Return a guardrail that always answers the same."""
    return cast("Guardrail", lambda _: answer)


def answering_later(answer: object) -> Guardrail:
    """Return an async guardrail that always answers the same."""

    async def guardrail(_: BeforeToolEvent) -> object:
        await trio.lowlevel.checkpoint()
        return answer

    return cast("Guardrail", guardrail)


EITHER = pytest.mark.parametrize("make", [answering, answering_later])


# --- what an answer means -------------------------------------------------------------------


@pytest.mark.rule(23)
@EITHER
@pytest.mark.parametrize("answer", [None, "", "allow", Verdicts.ALLOW])
async def test_three_answers_permit(make: Callable[[object], Guardrail], answer: object) -> None:
    """Nothing, an empty text, and the word; sync or async."""
    assert await denial([make(answer)], CALL, 1) is None


@pytest.mark.rule(23)
@EITHER
@pytest.mark.parametrize(
    "answer", ["Allow", "ALLOW", "allow ", " allow", " ", "\n", "no", "ok", "true", "None", Verdicts.NO]
)
async def test_any_other_text_denies_and_is_the_reason(
    make: Callable[[object], Guardrail], answer: str
) -> None:
    """Also one that was meant otherwise: what nearly permits does not."""
    reason = await denial([make(answer)], CALL, 1)
    assert reason == answer
    assert type(reason) is str


@pytest.mark.rule(20)
@pytest.mark.rule(23)
@given(st.text(st.characters(exclude_categories=()), min_size=1))
def test_a_reason_is_told_clean_and_bounded(answer: str) -> None:
    """C01, C10: whatever is in it, NUL and half characters too."""
    reason = trio.run(denial, [answering_later(answer)], CALL, 1)
    if answer == ALLOW:
        assert reason is None
    else:
        assert reason == cut_text(answer, MAX_REASON)


@pytest.mark.rule(20)
@pytest.mark.rule(23)
async def test_a_reason_without_measure_is_cut() -> None:
    """C10: and says how long it was."""
    reason = await denial([answering("x" * 1_000_000)], CALL, 1)
    assert reason is not None
    assert len(reason.encode()) <= 1000
    assert "1000000 characters" in reason
    assert clean_text(reason) == reason


def forgotten() -> Coroutine[object, object, str]:
    """Return the coroutine of a function that nobody awaits."""

    async def allow() -> str:
        return ALLOW

    return allow()


@pytest.mark.rule(23)
@EITHER
@pytest.mark.parametrize(
    ("make_answer", "kind"),
    [
        (lambda: True, "bool"),
        (lambda: False, "bool"),
        (lambda: 0, "int"),
        (lambda: 1, "int"),
        (lambda: 0.0, "float"),
        (lambda: b"allow", "bytes"),
        (lambda: b"", "bytes"),
        (list, "list"),
        (lambda: ["allow"], "list"),
        (lambda: (True, ""), "tuple"),
        (dict, "dict"),
        (lambda: {"allow": True}, "dict"),
        (lambda: str, "type"),
        (object, "object"),
        (lambda: NotImplemented, "NotImplementedType"),
        (lambda: (word for word in ["allow"]), "generator"),
        (EqualsEverything, "EqualsEverything"),
        (mimic_text, "Mock"),
    ],
)
async def test_whatever_is_no_text_denies(
    make: Callable[[object], Guardrail], make_answer: Callable[[], object], kind: str
) -> None:
    """Whatever it says it is or equals; a guardrail that says yes in another way has not said it."""
    assert await denial([make(make_answer())], CALL, 1) == NO_TEXT.format(kind)


@pytest.mark.rule(23)
async def test_a_forgotten_await_denies() -> None:
    """What was not awaited has not permitted anything."""
    assert await denial([answering_later(forgotten())], CALL, 1) == NO_TEXT.format("coroutine")


@pytest.mark.rule(23)
@EITHER
async def test_a_text_is_read_for_what_it_says(make: Callable[[object], Guardrail]) -> None:
    """Not for what it says it equals, nor for what its methods say."""
    assert await denial([make(DeceptiveStr("no"))], CALL, 1) == "no"
    assert await denial([make(DeceptiveStr("allow"))], CALL, 1) is None


# --- raising --------------------------------------------------------------------------------


class UnreadableError(Exception):
    """An error whose text cannot be read."""

    def __str__(self) -> str:
        """Fail."""
        raise SystemExit


ERRORS: list[tuple[BaseException, str]] = [
    (ValueError("no list"), "ValueError: no list"),
    (ValueError(), "ValueError"),
    (SystemExit(0), "SystemExit: 0"),
    (KeyboardInterrupt(), "KeyboardInterrupt"),
    (GeneratorExit(), "GeneratorExit"),
    (UnreadableError(), "UnreadableError: (its message could not be read)"),
    (ExceptionGroup("g", [ValueError("a"), KeyError("b")]), "ValueError: a; KeyError: 'b'"),
    (ValueError("token=hunter2hunter2"), "ValueError: token=[redacted]"),
    (ValueError("a\0\ud800"), "ValueError: a\ufffd\ufffd"),
]


@pytest.mark.rule(23)
@pytest.mark.parametrize(("error", "told"), ERRORS, ids=[told for _, told in ERRORS])
async def test_a_guardrail_that_raises_denies(error: BaseException, told: str) -> None:
    """B18, C12: whatever it raises, and however hostile the text of that is."""

    def sync(_: BeforeToolEvent) -> NoReturn:
        raise error

    async def later(_: BeforeToolEvent) -> NoReturn:
        await trio.lowlevel.checkpoint()
        raise error

    for guardrail in (sync, later):
        assert await denial([guardrail], CALL, 1) == f"a guardrail failed: {told}"


@pytest.mark.rule(23)
async def test_an_error_without_measure_is_cut() -> None:
    """C10: as every reason."""

    def guardrail(_: BeforeToolEvent) -> NoReturn:
        raise ValueError("x" * 1_000_000)

    reason = await denial([guardrail], CALL, 1)
    assert reason is not None
    assert len(reason.encode()) <= MAX_REASON


@pytest.mark.rule(23)
async def test_what_misbehaves_is_logged_without_content(caplog: pytest.LogCaptureFixture) -> None:
    """The log has whose mistake it was, the type and the frames; no message and no answer."""

    def raises(_: BeforeToolEvent) -> NoReturn:
        raise ValueError("tea")

    with caplog.at_level(logging.WARNING):
        await denial([raises], CALL, 1)
        await denial([partial(answering({"secret": "tea"}))], CALL, 1)
    raised, answered = caplog.messages
    assert "raises raised builtins.ValueError at " in raised
    assert "test_guardrails.raises" in raised
    assert answered == "guardrail partial returned dict, which is neither None nor a str"
    assert "tea" not in caplog.text


@pytest.mark.rule(23)
@pytest.mark.parametrize(
    "guardrail", [WithoutAttributes(), answering(WithoutClass())], ids=["asked", "answer"]
)
async def test_what_cannot_be_asked_what_it_is_denies(guardrail: Guardrail) -> None:
    """It is the guardrail's mistake, not the end of the run."""
    reason = await denial([guardrail], CALL, 1)
    assert reason is not None
    assert reason.startswith("a guardrail failed: RuntimeError: ")


# --- the order ------------------------------------------------------------------------------


def noting(asked: list[str], name: str, answer: object) -> Guardrail:
    """Return a guardrail that notes that it was asked."""

    async def guardrail(_: BeforeToolEvent) -> object:
        asked.append(name)
        return answer

    return cast("Guardrail", guardrail)


@pytest.mark.rule(23)
@pytest.mark.parametrize("deny", ["no", True, object()], ids=["text", "bool", "object"])
async def test_the_first_that_denies_is_the_last_that_is_asked(deny: object) -> None:
    """In the order they were given; its reason is the one that is told."""
    asked: list[str] = []
    answers = [("a", "allow"), ("b", None), ("c", deny), ("d", "later"), ("e", "allow")]
    reason = await denial([noting(asked, name, answer) for name, answer in answers], CALL, 1)
    assert asked == ["a", "b", "c"]
    assert reason == (deny if isinstance(deny, str) else NO_TEXT.format(type(deny).__name__))


@pytest.mark.rule(23)
async def test_all_have_to_permit() -> None:
    """One after the other, the last one too; and nobody to ask is nobody to deny."""
    asked: list[str] = []
    guardrails = [noting(asked, name, "allow") for name in "abc"]
    assert await denial(guardrails, CALL, 1) is None
    assert asked == ["a", "b", "c"]
    assert await denial([], CALL, 1) is None
    assert await denial([*guardrails, answering("no")], CALL, 1) == "no"


# --- what is asked about --------------------------------------------------------------------


@pytest.mark.rule(23)
async def test_a_guardrail_is_told_what_is_about_to_happen() -> None:
    """Name, arguments, id of the call, and the turn."""
    events: list[BeforeToolEvent] = []
    await denial([cast("Guardrail", events.append)], CALL, 7)
    expected = BeforeToolEvent(name="buy", args=CALL.input, id="c1", turn=7)
    assert events == [expected]


@pytest.mark.rule(23)
async def test_what_a_guardrail_does_to_the_arguments_changes_nothing() -> None:
    """Not for the tool, and not for the guardrail after it."""
    seen: list[object] = []

    async def meddle(event: BeforeToolEvent) -> None:
        item = event.args["item"]
        assert isinstance(item, dict)
        seen.append(dict(item))
        item["counts"].append(3)
        item["name"] = "gold"
        cast("dict[str, object]", event.args)["more"] = True

    call = ToolUseBlock("c1", "buy", {"item": {"name": "tea", "counts": [1, 2]}})
    assert await denial([meddle, meddle], call, 1) is None
    assert call == CALL
    assert [item["name"] for item in cast("list[dict[str, object]]", seen)] == ["tea", "tea"]
