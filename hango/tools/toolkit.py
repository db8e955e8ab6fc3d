"""A set of tools for runs outside a database: the direct door's.

Rule: what it holds is decided when it is made, and it serves only while it is open.  The tools, and how
they are called, are those of durable runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

import attrs

from hango.errors import RegistrationError
from hango.tools.builtin import builtin_tools
from hango.tools.registry import Registry, ToolSet
from hango.tools.tool import Tool

RESULT_LIMIT = 256 * 1024  # bytes, as HANGO_TOOL_RESULT_LIMIT


@attrs.define(eq=False)
class Toolkit:
    """Tools to run an agent with; an async context manager.

    Attributes:
        tools: of the caller's own.
        builtins: which of those that come with hango it has: all (True), none (False), or by name,
            where those not named are in.  Leaving out one that does not exist is no mistake, wanting
            it is.
        http_fetch_allowed_hosts: where ``http_fetch`` may go; empty is nowhere.

    Raises:
        RegistrationError: a tool is none, a name is taken, or *builtins* is no choice that can be made.
        InvalidInput: an entry of *http_fetch_allowed_hosts* cannot be read.
    """

    tools: Sequence[Tool] = ()
    builtins: bool | Mapping[str, bool] = attrs.field(default=True, kw_only=True)
    http_fetch_allowed_hosts: Sequence[str] = attrs.field(default=(), kw_only=True)
    _registry: Registry = attrs.field(factory=Registry, init=False)
    _open: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        """Register what it has."""
        for tool in (*self._builtins(), *self.tools):
            self._registry.register(tool)

    def _builtins(self) -> Sequence[Tool]:
        if self.builtins is False:
            return ()
        known = {
            t.name: t for t in builtin_tools(http_fetch_allowed_hosts=self.http_fetch_allowed_hosts)
        }
        if self.builtins is not True and not isinstance(self.builtins, Mapping):
            raise RegistrationError("builtins must be true, false, or a mapping of names to either")
        chosen = {} if self.builtins is True else dict(self.builtins)
        for name, wanted in chosen.items():
            if type(wanted) is not bool:
                raise RegistrationError(f"builtins: {name} must be true or false, not {wanted!r}")
            if wanted and name not in known:
                raise RegistrationError(f"builtins: there is no {name}; there are {', '.join(known)}")
        return [tool for name, tool in known.items() if chosen.get(name, True)]

    async def __aenter__(self) -> Self:
        """Open it."""
        self._open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it: no run begins with it any more."""
        self._open = False

    def names(self) -> tuple[str, ...]:
        """Return the names of its tools, sorted."""
        return self._registry.names()

    def toolbox(self, *, timeout: float) -> ToolSet:
        """Return its tools; *timeout* is the seconds one call may take.

        Raises:
            RegistrationError: it is not open.
        """
        if not self._open:
            raise RegistrationError("the toolkit is not open; use it in `async with Toolkit(...)`")
        return self._registry.view((), timeout=timeout, result_limit=RESULT_LIMIT)
