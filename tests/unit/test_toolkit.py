"""Toolkits: which tools one has, and when it serves."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

import pytest

from hango import Effects, Tool, Toolkit, tool
from hango.domain import Result
from hango.errors import InvalidInput, RegistrationError
from hango.tools import builtin_tools

from support.tools import call, shout, whisper

BUILTINS = tuple(sorted(made.name for made in builtin_tools(http_fetch_allowed_hosts=())))


# --- builtins -------------------------------------------------------------------------------


def test_there_are_builtins() -> None:
    """The tests below are about something."""
    assert BUILTINS == ("get_time", "http_fetch", "todowrite")


@pytest.mark.parametrize(
    ("builtins", "expected"),
    [
        (True, BUILTINS),
        (False, ()),
        ({}, BUILTINS),
        ({"todowrite": True}, BUILTINS),
        ({"todowrite": False}, ("get_time", "http_fetch")),
        (dict.fromkeys(BUILTINS, False), ()),
        (MappingProxyType({"get_time": False}), ("http_fetch", "todowrite")),
        ({"todowrite": True, "bash": False, "question": False, "": False}, BUILTINS),
        ({"Todowrite": False}, BUILTINS),
    ],
)
def test_builtins_are_chosen_by_name(
    builtins: bool | Mapping[str, bool],  # noqa: FBT001 - as it is given
    expected: tuple[str, ...],
) -> None:
    """Those not named are in; leaving out what does not exist is no mistake."""
    assert Toolkit(builtins=builtins).names() == expected


def test_by_default_all_are_in() -> None:
    """As in durable runs, where an agent that names no tools has them all."""
    assert Toolkit().names() == BUILTINS


def test_the_document_s_choice_leaves_one() -> None:
    """A list written for a port with more builtins."""
    others = ("bash", "read", "write", "edit", "glob", "grep", "webfetch", "apply_patch", "question")
    chosen = {"todowrite": True, "get_time": False, "http_fetch": False} | dict.fromkeys(others, False)
    assert Toolkit(builtins=chosen).names() == ("todowrite",)


@pytest.mark.parametrize("name", ["bash", "", "TodoWrite", "todowrite "])
def test_a_builtin_that_does_not_exist_cannot_be_wanted(name: str) -> None:
    """The error names it, and what there is."""
    with pytest.raises(RegistrationError, match=f"there is no {name}; there are .*todowrite"):
        Toolkit(builtins={name: True})


@pytest.mark.parametrize("wanted", [1, 0, "yes", "false", None, [True]])
@pytest.mark.parametrize("name", ["todowrite", "bash"])
def test_wanting_is_true_or_false(name: str, wanted: object) -> None:
    """Not nearly: "false" is true to Python."""
    with pytest.raises(RegistrationError, match=f"{name} must be true or false"):
        Toolkit(builtins={name: cast("bool", wanted)})


@pytest.mark.parametrize(
    "builtins", [None, 0, 1, "todowrite", ["todowrite"], [("todowrite", True)], 0.5]
)
def test_builtins_are_all_none_or_by_name(builtins: object) -> None:
    """A list of names is not taken for a choice, nor None for a yes or a no."""
    with pytest.raises(RegistrationError, match="builtins"):
        Toolkit(builtins=cast("bool", builtins))


# --- tools of one's own ---------------------------------------------------------------------


def test_own_tools_come_to_the_builtins() -> None:
    """Sorted by name with them, as models are told."""
    assert Toolkit([shout, whisper]).names() == (*BUILTINS[:2], "shout", "todowrite", "whisper")
    assert Toolkit((shout,), builtins=False).names() == ("shout",)


def named(name: str) -> Tool:
    """Return a tool of that name."""

    async def other() -> str:
        return "mine"

    return tool(effects=Effects.READ_ONLY, name=name)(other)


def test_a_name_is_taken_once() -> None:
    """By a builtin, or by another of one's own; leaving the builtin out frees its name."""
    with pytest.raises(RegistrationError, match=r"todowrite.*taken"):
        Toolkit([named("todowrite")])
    with pytest.raises(RegistrationError, match=r"shout.*taken"):
        Toolkit([shout, named("shout")], builtins=False)
    assert Toolkit([named("todowrite")], builtins={"todowrite": False}).names() == BUILTINS


def test_what_is_no_tool_is_refused() -> None:
    """A function is not one yet; the error says how it becomes one."""
    with pytest.raises(RegistrationError, match="not a tool"):
        Toolkit([cast("Tool", print)])


def test_hosts_that_cannot_be_read_are_refused() -> None:
    """When it is made, and not at the first call."""
    with pytest.raises(InvalidInput):
        Toolkit(http_fetch_allowed_hosts=["http://example.com/"])


# --- open and closed ------------------------------------------------------------------------


async def test_it_serves_only_while_it_is_open() -> None:
    """Its names are known always."""
    toolkit = Toolkit([shout])
    with pytest.raises(RegistrationError, match="async with"):
        toolkit.toolbox(timeout=1)
    async with toolkit as opened:
        assert opened is toolkit
        view = toolkit.toolbox(timeout=1)
        assert [definition.name for definition in view.definitions()] == list(toolkit.names())
        assert await call(view, "shout", text="hi") == Result("HI")
    with pytest.raises(RegistrationError, match="async with"):
        toolkit.toolbox(timeout=1)
    assert "shout" in toolkit.names()


async def test_it_is_closed_whatever_happens_in_it() -> None:
    """And lets the error through."""
    toolkit = Toolkit()
    with pytest.raises(LookupError, match="inside"):
        async with toolkit:
            raise LookupError("inside")
    with pytest.raises(RegistrationError):
        toolkit.toolbox(timeout=1)


async def test_a_fetch_goes_nowhere_unless_it_may() -> None:
    """By default no host is allowed."""
    async with Toolkit() as toolkit:
        result = await call(toolkit.toolbox(timeout=1), "http_fetch", url="https://example.com/")
    assert result.is_error


@pytest.mark.rule(20)
async def test_its_results_are_bounded() -> None:
    """C10: by what the settings of durable runs default to."""

    @tool(effects=Effects.READ_ONLY)
    async def recite() -> str:
        return "x" * 1_000_000

    async with Toolkit([recite]) as toolkit:
        result = await call(toolkit.toolbox(timeout=1), "recite")
    assert len(result.for_llm.encode()) == 256 * 1024
