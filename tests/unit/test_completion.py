"""Completion gates: when one can be used, what a verdict is, and what the transcript keeps of it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from enum import IntEnum
from functools import partial
from typing import NamedTuple, NoReturn, cast

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from hango import Completion, RunResult, Verifier
from hango.agent import completion
from hango.agent.callbacks import TenantThreads
from hango.agent.completion import MAX_REASON, UNSPECIFIED
from hango.codec import clean_text, cut_text
from hango.errors import InvalidInput, VerifierError

from support.deceptive_values import (
    DeceptiveStr,
    EqualsEverything,
    TupleWithoutLength,
    WithoutClass,
    mimic_text,
)

RESULT = RunResult("done")
judge = partial(completion.judge, threads=TenantThreads())


def passes(_: RunResult) -> tuple[bool, str]:
    """Let it pass."""
    return True, ""


async def passes_later(_: RunResult) -> tuple[bool, str]:
    """Let it pass, after a moment."""
    await trio.lowlevel.checkpoint()
    return True, ""


def passes_in_time(result: RunResult) -> Awaitable[tuple[bool, str]]:
    """Let it pass, in its own time, but say so at once."""
    return passes_later(result)


class Strict:
    """A verifier with a state of its own."""

    async def __call__(self, _: RunResult) -> tuple[bool, str]:
        """Let it pass."""
        return True, ""


class Judgement(NamedTuple):
    """A verdict with names."""

    ok: bool
    reason: str


class Many(IntEnum):
    """Numbers that are more than numbers."""

    TWO = 2


# --- a gate that can be used ----------------------------------------------------------------


@pytest.mark.rule(24)
@pytest.mark.parametrize("attempts", [1, 2, 100, 10**30])
@pytest.mark.parametrize("verify", [passes, passes_later, Strict(), partial(passes)])
def test_a_gate_is_a_function_and_a_number(verify: Verifier, attempts: int) -> None:
    """Any function, any whole number from 1."""
    Completion(verify, attempts).check()


@pytest.mark.rule(24)
@pytest.mark.parametrize(
    "attempts", [True, False, 0, -1, 2.0, 1.5, float("inf"), "3", b"3", None, [1], Many.TWO, 1 + 0j]
)
def test_what_is_no_number_of_attempts_is_refused(attempts: object) -> None:
    """True is not 1 and 2.0 is not 2 here; the field is named."""
    with pytest.raises(InvalidInput, match="integer of at least 1") as raised:
        Completion(passes, cast("int", attempts)).check()
    assert raised.value.field == "completion.max_attempts"


@pytest.mark.rule(24)
@pytest.mark.parametrize("verify", [None, "all_todos_done", True, (True, ""), 5, RESULT])
def test_what_cannot_be_called_is_no_verifier(verify: object) -> None:
    """Also the name of one: that is for agents that are stored."""
    with pytest.raises(InvalidInput, match="callable") as raised:
        Completion(cast("Verifier", verify), 1).check()
    assert raised.value.field == "completion.verify"


# --- what a verdict is ----------------------------------------------------------------------


def answering(answer: object) -> Verifier:
    """Return a verifier that always answers the same."""
    return cast("Verifier", lambda _: answer)


def answering_later(answer: object) -> Verifier:
    """Return an async verifier that always answers the same."""

    async def verify(_: RunResult) -> object:
        await trio.lowlevel.checkpoint()
        return answer

    return cast("Verifier", verify)


EITHER = pytest.mark.parametrize("make", [answering, answering_later])


@pytest.mark.rule(24)
@pytest.mark.parametrize(
    "verify",
    [passes, passes_later, Strict(), partial(passes_later), passes_in_time],
)
async def test_a_verifier_of_any_shape_may_let_a_run_pass(verify: Verifier) -> None:
    """Sync, async, or sync with something to await for an answer."""
    assert await judge(verify, RESULT) is None


@pytest.mark.rule(24)
@EITHER
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((True, ""), None),
        ((True, "what it says then does not matter"), None),
        ((False, "no tests"), "no tests"),
        ((False, ""), UNSPECIFIED),
        ((False, " \n\t"), UNSPECIFIED),
        ((False, "  no tests "), "  no tests "),
        ((False, "\0\ud800"), "\ufffd\ufffd"),
        ((False, DeceptiveStr("no tests")), "no tests"),
        ((False, DeceptiveStr("")), UNSPECIFIED),
        ((True, DeceptiveStr("no")), None),
        (Judgement(ok=True, reason=""), None),
        (Judgement(ok=False, reason="no tests"), "no tests"),
        (TupleWithoutLength((False, "no tests")), "no tests"),
    ],
)
async def test_a_verdict_is_a_bool_and_a_text(
    make: Callable[[object], Verifier], answer: object, reason: str | None
) -> None:
    """Read for what they say; an empty reason reads as none was given."""
    told = await judge(make(answer), RESULT)
    assert told == reason
    assert told is None or type(told) is str


@pytest.mark.rule(24)
@EITHER
@pytest.mark.parametrize(
    "make_answer",
    [
        lambda: True,
        lambda: False,
        lambda: None,
        lambda: "",
        lambda: "yes",
        lambda: 1,
        tuple,
        lambda: (True,),
        lambda: (True, None),
        lambda: (False, None),
        lambda: (False, b"no"),
        lambda: (True, "", ""),
        lambda: (False, "no", {}),
        lambda: (1, "no"),
        lambda: (0, "no"),
        lambda: (None, "no"),
        lambda: ("no", False),
        lambda: (EqualsEverything(), "no"),
        lambda: [True, ""],
        lambda: {True: ""},
        lambda: iter((True, "")),
        lambda: ((True, ""),),
        lambda: (True, mimic_text()),
        lambda: (False, mimic_text()),
        lambda: TupleWithoutLength((True,)),
        EqualsEverything,
        WithoutClass,
        object,
        lambda: (word for word in ["yes"]),
    ],
)
async def test_anything_else_is_an_error_and_not_a_pass(
    make: Callable[[object], Verifier], make_answer: Callable[[], object]
) -> None:
    """Above all a bare True: it may be the first half of a verdict that got lost."""
    with pytest.raises(VerifierError) as raised:
        await judge(make(make_answer()), RESULT)
    assert str(raised.value)


@pytest.mark.rule(24)
async def test_an_error_names_what_came_instead() -> None:
    """By its type; not by its content."""
    with pytest.raises(
        VerifierError, match=r"^a verifier must return \(bool, str\), but it returned bool$"
    ):
        await judge(answering(answer=True), RESULT)


@pytest.mark.rule(24)
async def test_a_forgotten_await_is_an_error() -> None:
    """A coroutine is true, and still no verdict."""

    async def forgetful(result: RunResult) -> Coroutine[object, object, tuple[bool, str]]:
        return passes_later(result)

    with pytest.raises(VerifierError, match="coroutine"):
        await judge(cast("Verifier", forgetful), RESULT)


@pytest.mark.rule(20)
@pytest.mark.rule(24)
@given(st.text(st.characters(exclude_categories=()), max_size=20), st.integers(1, 2000))
def test_a_reason_is_told_clean_and_bounded(part: str, times: int) -> None:
    """C01, C10: whatever is in it, however long it is."""
    said = part * times
    told = trio.run(judge, answering_later((False, said)), RESULT)
    assert told == (cut_text(said, MAX_REASON) if said.strip() else UNSPECIFIED)
    assert told == clean_text(told)
    assert len(told.encode()) <= 1000


# --- raising --------------------------------------------------------------------------------


class UnreadableError(Exception):
    """An error whose text cannot be read."""

    def __str__(self) -> str:
        """Fail."""
        raise SystemExit


ERRORS: Sequence[tuple[BaseException, str]] = [
    (ValueError("no tests"), "ValueError: no tests"),
    (AssertionError(), "AssertionError"),
    (SystemExit(0), "SystemExit: 0"),
    (KeyboardInterrupt(), "KeyboardInterrupt"),
    (GeneratorExit(), "GeneratorExit"),
    (UnreadableError(), "UnreadableError: (its message could not be read)"),
    (ExceptionGroup("g", [ValueError("a"), KeyError("b")]), "ValueError: a; KeyError: 'b'"),
    (ValueError("api_key=hunter2hunter2"), "ValueError: api_key=[redacted]"),
    (ValueError("a\0\ud800"), "ValueError: a\ufffd\ufffd"),
]


@pytest.mark.rule(24)
@pytest.mark.parametrize(("error", "told"), ERRORS, ids=[told for _, told in ERRORS])
async def test_a_verifier_that_raises_is_an_error(error: BaseException, told: str) -> None:
    """C12: whatever it raises, and however hostile the text of that is."""

    def sync(_: RunResult) -> NoReturn:
        raise error

    async def later(_: RunResult) -> NoReturn:
        await trio.lowlevel.checkpoint()
        raise error

    for verify in (sync, later):
        with pytest.raises(VerifierError) as raised:
            await judge(verify, RESULT)
        assert str(raised.value) == told


@pytest.mark.rule(24)
async def test_what_a_verifier_raises_is_logged_without_content(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Type and frames, so that it can be found; no message."""

    def raises(_: RunResult) -> NoReturn:
        raise ValueError("tea")

    with caplog.at_level(logging.WARNING), pytest.raises(VerifierError):
        await judge(raises, RESULT)
    assert "builtins.ValueError at " in caplog.text
    assert "test_completion.raises" in caplog.text
    assert "tea" not in caplog.text
