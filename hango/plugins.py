"""Plug-ins: modules of ``HANGO_PLUGINS`` that register tools, providers, guardrails and verifiers.

Rule: a plug-in that cannot be used stops the start of the process with a `RegistrationError` naming
its module.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TypeAlias, TypeVar

import attrs

from hango.agent import Guardrail, Provider, Verifier, all_todos_done
from hango.domain.names import API_NAME, is_api_name
from hango.errors import RegistrationError
from hango.safe_errors import describe
from hango.tools import Registry, Tool

ProviderFactory: TypeAlias = Callable[[], Provider]

T = TypeVar("T")


@attrs.define
class Plugins:
    """What plug-ins have registered; the argument of each one's ``register(plugins)``.

    Attributes:
        registry: all tools.
        providers: factories, by the name that agents select them by.
        guardrails: by the name that agents select them by.
        verifiers: by the name that agents select them by; `all_todos_done` is always registered.
    """

    registry: Registry = attrs.field(factory=Registry)
    providers: dict[str, ProviderFactory] = attrs.field(factory=dict)
    guardrails: dict[str, Guardrail] = attrs.field(factory=dict)
    verifiers: dict[str, Verifier] = attrs.field(factory=lambda: {"all_todos_done": all_todos_done})
    _modules: dict[str, str] = attrs.field(factory=dict, init=False)  # of plug-ins, by provider
    _made: dict[str, Provider] | None = attrs.field(default=None, init=False)

    def made_providers(self) -> Mapping[str, Provider]:
        """Return the providers by name; the first call makes them.

        Raises:
            RegistrationError: a factory raised, or what it made is not a provider; names its module.
        """
        if self._made is None:
            self._made = {name: self._make(name, factory) for name, factory in self.providers.items()}
        return self._made

    def _make(self, name: str, factory: ProviderFactory) -> Provider:
        try:
            return _made(name, factory)
        except RegistrationError as error:
            module = self._modules.get(name)
            if not module:
                raise
            raise RegistrationError(f"plug-in {module}: {error}") from error

    def registered_by(self, module: str) -> None:
        """Remember *module* for the providers that were registered since the last call."""
        self._modules |= {name: module for name in self.providers if name not in self._modules}

    def tool(self, t: Tool) -> None:
        """Add a tool.

        Raises:
            RegistrationError: it is not a tool, or its name is taken.
        """
        self.registry.register(t)

    def provider(self, name: str, factory: ProviderFactory) -> None:
        """Add a provider; *factory* is called once, when the process starts.

        Raises:
            RegistrationError: the name is taken or not valid, or the factory cannot be called.
        """
        _add(self.providers, "provider", name, factory)

    def guardrail(self, name: str, guardrail: Guardrail) -> None:
        """Add a guardrail; see `hango.Guardrail`.

        Raises:
            RegistrationError: the name is taken or not valid, or *guardrail* cannot be called.
        """
        _add(self.guardrails, "guardrail", name, guardrail)

    def verifier(self, name: str, verifier: Verifier) -> None:
        """Add a verifier, for completion gates; see `hango.Verifier`.

        Raises:
            RegistrationError: the name is taken or not valid, or *verifier* cannot be called.
        """
        _add(self.verifiers, "verifier", name, verifier)


def _add(registered: dict[str, T], kind: str, name: str, function: T) -> None:
    if type(name) is not str or not is_api_name(name):
        raise RegistrationError(f"{kind} {name!r}: its name must match {API_NAME}")
    if name in registered:
        raise RegistrationError(f"{kind} {name}: the name is taken")
    if not callable(function):
        raise RegistrationError(f"{kind} {name}: it is not callable")
    registered[name] = function


def load_plugins(modules: Sequence[str], plugins: Plugins) -> None:
    """Import each of *modules*, in order, and call its ``register``.

    Raises:
        RegistrationError: the first that cannot be used; it is named.
    """
    plugins.registered_by("")  # what was there before
    for module in modules:
        try:
            _load(module, plugins)
            plugins.registered_by(module)
        except KeyboardInterrupt:  # Ctrl-C while the process starts
            raise
        except BaseException as error:  # the border to foreign code
            reason = error if isinstance(error, RegistrationError) else describe(error)
            raise RegistrationError(f"plug-in {module}: {reason}") from error


def _load(module: str, plugins: Plugins) -> None:
    register = getattr(import_module(module), "register", None)
    if not callable(register):
        raise RegistrationError("it has no function register(plugins)")
    if inspect.iscoroutinefunction(register):
        raise RegistrationError("its register(plugins) is async; it must be a plain function")
    register(plugins)


def _made(name: str, factory: ProviderFactory) -> Provider:
    try:
        provider = factory()
        fits = callable(provider.stream)
        its_name: object = provider.name
    except KeyboardInterrupt:  # Ctrl-C while the process starts
        raise
    except BaseException as error:  # the border to foreign code
        raise RegistrationError(f"provider {name}: {describe(error)}") from error
    if not fits or not isinstance(its_name, str):
        kind = type(provider).__name__
        raise RegistrationError(f"provider {name}: a {kind} has no stream(request) or no name")
    return provider
