"""The tools of in-process runs (`hango.Agent`), which need no database.

Tools and calls are those of durable runs.  A toolkit can be used only while it is open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

import attrs

from hango.domain.defaults import TOOL_RESULT_LIMIT
from hango.errors import RegistrationError
from hango.tools.builtin import builtin_tools
from hango.tools.registry import Registry, ToolSet
from hango.tools.tool import Tool


@attrs.define(eq=False)
class Toolkit:
    """Tools to run an agent with; an async context manager.

    Attributes:
        tools: of the caller's own.
        builtins: which of hango's own tools it has: all (True), none (False), or by name; those not
            named are included.  To include one that does not exist is an error, to exclude it is not.
        http_fetch_allowed_hosts: hosts that ``http_fetch`` may fetch from; empty for none.

    Raises:
        RegistrationError: something is not a tool, a name is taken, or *builtins* is not as above.
        InvalidInput: an entry of *http_fetch_allowed_hosts* cannot be read.
    """

    tools: Sequence[Tool] = ()
    builtins: bool | Mapping[str, bool] = attrs.field(default=True, kw_only=True)
    http_fetch_allowed_hosts: Sequence[str] = attrs.field(default=(), kw_only=True)
    _registry: Registry = attrs.field(factory=Registry, init=False)
    _open: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        """Register the tools."""
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
        """Open the toolkit."""
        self._open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the toolkit: no further run can begin with it."""
        self._open = False

    def names(self) -> tuple[str, ...]:
        """Return the names of its tools, sorted."""
        return self._registry.names()

    def toolbox(self, *, timeout: float, tools: Sequence[object] = ()) -> ToolSet:
        """Return its tools, and *tools* that an agent has of its own.

        Args:
            timeout: seconds one call may take.
            tools: made by `hango.tool`, like those of the toolkit.

        Raises:
            RegistrationError: it is not open, one of *tools* is not a tool, or a name is taken.
        """
        if not self._open:
            raise RegistrationError("the toolkit is not open; use it in `async with Toolkit(...)`")
        registry = self._registry.with_tools(tools) if tools else self._registry
        return registry.view((), timeout=timeout, result_limit=TOOL_RESULT_LIMIT)
