"""Results: whatever a tool returns is text that can be stored, or an error that says why not."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
import trio

from hango.domain import Effects, Result
from hango.tools import tool

from support.tools import LIMIT, call, counting, failed, view_of


@pytest.mark.rule(21)
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("text", "text"),
        (None, "(no output)"),
        ("", "(no output)"),
        (3, "3"),
        (True, "true"),
        (1.5, "1.5"),
        ({"a": [1, None, "ü"]}, '{"a":[1,null,"ü"]}'),
        ((1, 2), "[1,2]"),
        ([], "[]"),
        ("nul\0 and \ud800", "nul\ufffd and \ufffd"),
        ({"k\0": "v\0"}, '{"k\ufffd":"v\ufffd"}'),
        (Result("a"), "a"),
        (Result(None), "(no output)"),  # type: ignore[arg-type]  # what untyped tools do
        (Result({"a": 1}), '{"a":1}'),  # type: ignore[arg-type]  # what untyped tools do
    ],
)
async def test_what_a_tool_returns_becomes_text(value: object, text: str) -> None:
    """C01, C09: text as it is, the rest as JSON, all of it clean."""
    view = view_of(tool(effects=Effects.READ_ONLY, name="t")(lambda: value))
    assert await call(view, "t") == Result(text)


@pytest.mark.rule(21)
async def test_what_people_see_may_differ_and_is_cleaned_too() -> None:
    """`for_user` is kept apart; None falls back to what the model sees."""

    @tool(effects=Effects.READ_ONLY)
    async def split() -> Result:
        return Result("for the model", "for\0people" + "x" * 2 * LIMIT)

    result = await call(view_of(split), "split")
    assert result.for_llm == "for the model"
    assert result.for_user is not None
    assert result.for_user.startswith("for\ufffdpeople")
    assert len(result.for_user.encode()) <= LIMIT


class Hostile:
    """An object that cannot even be shown."""

    def __str__(self) -> str:
        """Fail."""
        raise RuntimeError

    __repr__ = __str__
    __eq__ = __bool__ = __len__ = __iter__ = __str__  # type: ignore[assignment]  # hostile in every way
    __hash__ = None  # type: ignore[assignment]  # hostile in every way


def _endless() -> object:
    endless: list[object] = []
    endless.append(endless)
    return endless


@pytest.mark.rule(20)
@pytest.mark.parametrize(
    "value",
    [
        b"\xff",
        {1, 2},
        datetime(2026, 1, 1, tzinfo=UTC),
        float("nan"),
        [math.inf],
        {1: 2},
        10**5000,
        Hostile(),
        [Hostile()],
        _endless(),
        Result(b"x"),  # type: ignore[arg-type]  # what untyped tools do
        Result("a", for_user=Hostile()),  # type: ignore[arg-type]  # what untyped tools do
        Result,
        lambda: None,
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_result_that_cannot_be_stored_is_an_error(value: object) -> None:
    """C09: the model learns that the tool ran and why nothing came of it."""
    with counting("t", "invalid_result"):
        result = await failed(lambda: value)
    assert "cannot be used" in result.for_llm


@pytest.mark.rule(20)
async def test_a_sync_function_that_returns_a_coroutine_is_an_error() -> None:
    """C09: it was not awaited, and Python has nothing to warn about."""
    result = await failed(lambda: trio.sleep_forever())  # noqa: ASYNC105, PLW0108  # a slip
    assert "coroutine" in result.for_llm


@pytest.mark.rule(20)
@pytest.mark.parametrize("text", ["x" * 20_000_000, "🔧" * 16_385, "a" + "é" * LIMIT])
async def test_results_are_cut_to_the_limit_on_a_character_boundary(text: str) -> None:
    """C10: and they say so."""
    result = await call(view_of(tool(effects=Effects.READ_ONLY, name="t")(lambda: text)), "t")
    assert not result.is_error
    assert LIMIT - 10 < len(result.for_llm.encode()) <= LIMIT
    assert f"[cut: {len(text)} characters in all]" in result.for_llm
    assert "\ufffd" not in result.for_llm


@pytest.mark.rule(21)
@pytest.mark.parametrize("text", ["", " \n", None])
async def test_an_error_result_is_never_empty(text: str) -> None:
    """Providers refuse empty errors, and a model could not act on one."""
    with counting("t", "tool_error"):
        await failed(lambda: Result(text, is_error=True))
