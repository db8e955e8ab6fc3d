"""Plug-ins: what a module registers, and how a module that cannot be used stops the start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hango import Plugins
from hango.errors import RegistrationError
from hango.plugins import ProviderFactory, load_plugins
from hango.testing import FakeProvider

Write = Callable[[str, str], str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Write:
    """Return a function that writes a module and returns the name it can be imported by."""
    monkeypatch.syspath_prepend(tmp_path)

    def write_module(name: str, text: str) -> str:
        # a module is imported once in a process, so every test has its own
        unique = f"plugin_{abs(hash(request.node.nodeid))}_{name}"
        (tmp_path / f"{unique}.py").write_text(text)
        return unique

    return write_module


GOOD = '''
import hango


@hango.tool(effects=hango.Effects.READ_ONLY)
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def make():
    raise AssertionError("made only when needed")


def register(plugins: hango.Plugins) -> None:
    plugins.tool(add)
    plugins.provider("mine", make)
'''


def test_a_module_registers_its_tools_and_providers(write: Write) -> None:
    """They are there afterwards, and no provider has been made yet."""
    plugins = Plugins()
    load_plugins([write("good", GOOD)], plugins)
    assert plugins.registry.names() == ("add",)
    assert list(plugins.providers) == ["mine"]


def test_modules_are_loaded_in_their_order(write: Write) -> None:
    """A later one meets what an earlier one has registered, and the error names the later one."""
    first, second = write("first", GOOD), write("second", GOOD)
    with pytest.raises(RegistrationError, match=f"plug-in {second}: tool add of {second}.*{first}"):
        load_plugins([first, second], Plugins())


REMOTE = "import hango\nSCHEMA = {'type': 'object', '$ref': 'http://x/'}\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x = (", "SyntaxError"),
        ("import no_such_module_anywhere", "no_such_module_anywhere"),
        ("raise ValueError('at import')", "at import"),
        ("raise SystemExit(1)", "SystemExit"),
        ("raise GeneratorExit", "GeneratorExit"),
        ("raise BaseExceptionGroup('x', [SystemExit(1)])", "SystemExit"),
        ("", "register"),
        ("register = 5", "register"),
        ("async def register(plugins): ...", "async"),
        ("def register(): ...", "TypeError"),
        ("def register(plugins): raise LookupError('inside')", "inside"),
        ("def register(plugins): plugins.tool(print)", "not a tool"),
        ("def register(plugins): plugins.provider('a b', print)", "name"),
        ("def register(plugins): plugins.provider(5, print)", "name"),
        ("def register(plugins): plugins.provider('a', 5)", "provider a: it is not callable"),
        ("def register(plugins): plugins.guardrail('a b', len)", "must match"),
        ("def register(plugins): plugins.guardrail('a', 'deny')", "guardrail a: it is not callable"),
        ("def register(plugins): plugins.verifier('all_todos_done', len)", "taken"),
        ("def register(plugins):\n for _ in 'ab': plugins.provider('a', print)", "taken"),
        ("import hango\n@hango.tool()\ndef f(): ...", "effects"),
        ("import hango\n@hango.tool\ndef f(): ...", "effects"),
        ("import hango\n@hango.tool(effects='read_only')\ndef f(a): ...", "annotation"),
        (
            f"{REMOTE}def register(p): p.tool(hango.Tool('f', '', SCHEMA, 'read_only', print))",
            "outside itself",
        ),
    ],
)
def test_a_module_that_cannot_be_used_is_named(write: Write, text: str, reason: str) -> None:
    """Every failure is one kind of error, with the module and the reason in it."""
    module = write("bad", text)
    with pytest.raises(RegistrationError, match=f"plug-in {module}: .*{reason}"):
        load_plugins([module], Plugins())


@pytest.mark.parametrize("name", ["", ".relative", "no.such.module", "not a name", "a/b", "nul\0"])
def test_a_name_that_is_no_module_is_named(name: str) -> None:
    """Also when it cannot be one."""
    with pytest.raises(RegistrationError, match="plug-in "):
        load_plugins([name], Plugins())


def test_a_provider_name_is_registered_once() -> None:
    """Also when the first one came with hango."""
    factory: ProviderFactory = lambda: pytest.fail("not made here")  # noqa: E731  # typed by its name
    plugins = Plugins(providers={"openai": factory})
    with pytest.raises(RegistrationError, match=r"openai.*taken"):
        plugins.provider("openai", factory)


def _exit() -> FakeProvider:
    raise SystemExit("MINE_KEY is not set")


@pytest.mark.rule(27)
@pytest.mark.parametrize(
    ("factory", "reason"),
    [
        (_exit, "SystemExit: MINE_KEY is not set"),
        (lambda: "openai", "AttributeError"),
        (lambda: None, "AttributeError"),
        (lambda: FakeProvider([], name=None), "no name"),  # type: ignore[arg-type]  # untyped plug-ins
        (FakeProvider, "TypeError"),
    ],
)
def test_a_provider_that_cannot_be_made_is_named(factory: ProviderFactory, reason: str) -> None:
    """R-F15: by its name and the reason, as an error that tells the user what to mend."""
    plugins = Plugins()
    plugins.provider("mine", factory)
    with pytest.raises(RegistrationError, match=f"provider mine: .*{reason}"):
        plugins.made_providers()


def test_providers_are_made_by_their_names() -> None:
    """Once each."""
    plugins = Plugins()
    plugins.provider("mine", lambda: FakeProvider([], name="mine"))
    assert [provider.name for provider in plugins.made_providers().values()] == ["mine"]
