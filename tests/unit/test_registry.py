"""Registry and view: what is registered, who may call what, and with which arguments."""

from __future__ import annotations

import threading
from typing import Annotated

import pytest
from pydantic import BeforeValidator

from hango.agent.ports import Toolbox
from hango.domain import Effects, ToolUseBlock
from hango.errors import RegistrationError
from hango.safe_errors import MAX_MESSAGE
from hango.testing import MemoryLedger
from hango.tools import Registry, tool

from support.tools import CONTEXT, LIMIT, call, call_one, counting, registry_of, shout, view_of, whisper

# --- registering ----------------------------------------------------------------------------


def test_a_view_is_a_toolbox() -> None:
    """The agent's loop can use a view as it is."""
    toolbox: Toolbox = view_of(shout)
    assert [d.name for d in toolbox.definitions()] == ["shout"]


def test_a_name_is_registered_once() -> None:
    """The second one is refused, and the error names both modules."""
    registry = registry_of(shout)
    with pytest.raises(RegistrationError, match=f"shout of {__name__}.*taken.*{whisper.module}"):
        registry.register(tool(effects=Effects.READ_ONLY, name="shout")(lambda: None))


@pytest.mark.parametrize("effects", Effects)
def test_tools_of_all_effects_are_registered(effects: Effects) -> None:
    """What must not just run twice is recorded when it is called."""
    assert registry_of(tool(effects=effects, name="t")(lambda: None)).names() == ("t",)


def test_a_plain_function_is_not_a_tool() -> None:
    """The error says what to do."""
    with pytest.raises(RegistrationError, match=r"function.*@hango\.tool"):
        Registry().register(lambda: None)  # type: ignore[arg-type]  # the mistake under test


def test_names_and_definitions_are_sorted() -> None:
    """The order of plug-ins changes no prompt."""
    one, other = registry_of(shout, whisper), registry_of(whisper, shout)
    assert one.names() == other.names() == ("shout", "whisper")
    views = [r.view([], timeout=1, result_limit=LIMIT) for r in (one, other)]
    assert views[0].definitions() == views[1].definitions()


# --- who may call what ----------------------------------------------------------------------


def test_an_empty_allow_list_means_every_tool_and_a_useless_one_means_none() -> None:
    """Names that are not registered do not open the door."""
    registry = registry_of(shout, whisper)
    for allow, names in (
        ([], ["shout", "whisper"]),
        (["shout", "gone"], ["shout"]),
        (["gone"], []),
    ):
        view = registry.view(allow, timeout=1, result_limit=LIMIT)
        assert [d.name for d in view.definitions()] == names


@pytest.mark.rule(18)
async def test_the_allow_list_holds_at_the_call() -> None:
    """C11: a registered tool outside the list is unknown to the model, and does not run."""
    ran: list[str] = []

    @tool(effects=Effects.READ_ONLY)
    async def secret() -> None:
        ran.append("secret")

    view = registry_of(shout, secret).view(["shout"], timeout=1, result_limit=LIMIT)
    with counting("secret", "not_allowed"):
        result = await call(view, "secret")
    assert result.is_error
    assert "unknown tool" in result.for_llm
    assert "shout" in result.for_llm
    assert not ran


@pytest.mark.rule(18)
@pytest.mark.parametrize(
    "name", ["SHOUT", "shout ", "__class__", "", "sh\0out", "\ud800", "../shout", "x" * 10_000, "🔧"]
)
async def test_a_made_up_name_is_an_error_result(name: str) -> None:
    """C11: exact names only; the echo is bounded and the label is not the model's to choose."""
    with counting("_unknown", "unknown_tool"):
        result = await call(view_of(shout), name)
    assert result.is_error
    assert result.for_llm.startswith("unknown tool")
    assert len(result.for_llm) < 300
    result.for_llm.encode()


# --- arguments ------------------------------------------------------------------------------


@pytest.mark.rule(18)
@pytest.mark.parametrize("raw", ["[]", '"x"', "3", "null", "true", '{"text": "unclosed', "x" * 100_000])
async def test_arguments_that_are_not_an_object_never_reach_the_tool(raw: str) -> None:
    """C04, C05: malformed JSON is not taken for {}, and the echo is bounded."""
    ran: list[str] = []

    @tool(effects=Effects.READ_ONLY)
    async def optional(text: str = "") -> None:
        ran.append(text)

    block = ToolUseBlock(id="c1", name="optional", raw_input=raw)
    with counting("optional", "invalid_arguments"):
        result = await view_of(optional).call(block, CONTEXT, MemoryLedger())
    assert result.is_error
    assert "not a JSON object" in result.for_llm
    assert len(result.for_llm) < 300
    assert not ran


@pytest.mark.rule(18)
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "text"),
        ({"text": 5}, "$.text"),
        ({"text": ["a"]}, "$.text"),
        ({"text": None}, "$.text"),
        ({"text": "a", "extra": 1}, "extra"),
        ({"text": 1, "x" * 50_000: "y" * 50_000}, "x"),
        ({"text": "a", "deep": [[]]}, "deep"),
        ({"text": {"a": float("nan")}}, "nan"),
    ],
)
async def test_arguments_that_violate_the_schema_never_reach_the_tool(
    arguments: dict[str, object], told: str
) -> None:
    """C04: the message names the problem, and is bounded."""
    with counting("shout", "invalid_arguments"):
        result = await view_of(shout).call(
            ToolUseBlock("c1", "shout", arguments), CONTEXT, MemoryLedger()
        )
    assert result.is_error
    assert told in result.for_llm
    assert len(result.for_llm.encode()) <= MAX_MESSAGE


@pytest.mark.rule(18)
async def test_arguments_nested_beyond_reason_are_refused() -> None:
    """C04: a depth that would break later is an error now."""
    deep: object = []
    for _ in range(5000):
        deep = [deep]
    assert (await call(view_of(shout), "shout", text=deep)).is_error


@pytest.mark.rule(20)
async def test_arguments_are_cleaned_before_the_tool_sees_them() -> None:
    """C01: NUL in a model's argument becomes U+FFFD."""
    assert (await call(view_of(shout), "shout", text="a\0b\ud800")).for_llm == "A\ufffdB\ufffd"


@pytest.mark.parametrize(("values", "in_thread"), [(10, False), (10_000, True)])
async def test_many_arguments_are_checked_in_a_thread(values: int, *, in_thread: bool) -> None:
    """S-H4: a model may write as many as it likes, and to check them takes long."""
    seen: set[bool] = set()

    def look(value: object) -> object:
        seen.add(threading.current_thread() is not threading.main_thread())
        return value

    @tool(effects=Effects.READ_ONLY)
    async def count(numbers: Annotated[list[int], BeforeValidator(look)]) -> str:
        assert threading.current_thread() is threading.main_thread()
        return str(len(numbers))

    assert (await call_one(count, numbers=[1] * values)).for_llm == str(values)
    wrong = await call_one(count, numbers=[*[1] * values, "x"])
    assert "did not run" in wrong.for_llm
    assert seen == {in_thread}
