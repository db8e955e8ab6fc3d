"""Plug-ins: what modules named in ``HANGO_PLUGINS`` add to a process.

Rule: a plug-in that cannot be used stops the start, with a `RegistrationError` that names its module; a
process never runs with half of what it was told to have.  Only ``hango.app`` loads them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TypeAlias

import attrs

from hango.agent.ports import Provider
from hango.errors import RegistrationError
from hango.telemetry.raised import told
from hango.tools import Registry, Tool

ProviderFactory: TypeAlias = Callable[[], Provider]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # as for tools: it stands in URLs, settings and labels


@attrs.define
class Plugins:
    """What plug-ins register with: handed to each one's ``register(plugins)``.

    Attributes:
        registry: all tools.
        providers: factories by the name agents choose them by.
    """

    registry: Registry = attrs.field(factory=Registry)
    providers: dict[str, ProviderFactory] = attrs.field(factory=dict)

    def tool(self, t: Tool) -> None:
        """Add a tool.

        Raises:
            RegistrationError: it is none, or its name is taken.
        """
        self.registry.register(t)

    def provider(self, name: str, factory: ProviderFactory) -> None:
        """Add a provider; *factory* makes it, once, when the process starts.

        Raises:
            RegistrationError: the name is taken or not a name, or the factory cannot be called.
        """
        if type(name) is not str or not _NAME.fullmatch(name):
            raise RegistrationError(f"provider {name!r}: its name must match {_NAME.pattern}")
        if name in self.providers:
            raise RegistrationError(f"provider {name}: the name is taken")
        if not callable(factory):
            raise RegistrationError(f"provider {name}: its factory cannot be called")
        self.providers[name] = factory


def load_plugins(modules: Sequence[str], plugins: Plugins) -> None:
    """Import each of *modules*, in order, and let it register.

    Raises:
        RegistrationError: at the first that cannot be used; names it.
    """
    for module in modules:
        try:
            _load(module, plugins)
        except (
            Exception,
            SystemExit,
        ) as error:  # whatever foreign code does at import: it is its fault
            reason = error if isinstance(error, RegistrationError) else told(error)
            raise RegistrationError(f"plug-in {module}: {reason}") from error


def _load(module: str, plugins: Plugins) -> None:
    register = getattr(import_module(module), "register", None)
    if not callable(register):
        raise RegistrationError("it has no function register(plugins)")
    if inspect.iscoroutinefunction(register):
        raise RegistrationError("its register(plugins) is async; it must be a plain function")
    register(plugins)
