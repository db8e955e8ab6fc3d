"""The tools a process has, and the views of them that agents get.

Rule: no failure of a tool gets past `ToolSet.call`: it comes back as an error result that is bounded,
clean and never empty.  What does get past it is `trio.Cancelled`, and the ledger's errors.  The
allow-list is held here, at the call.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypeAlias

import attrs
import trio

from hango.codec import cut_text
from hango.domain import Ledger, Result, ToolContext, ToolDefinition, ToolUseBlock
from hango.errors import RegistrationError
from hango.safe_errors import MAX_MESSAGE
from hango.telemetry import metrics, names
from hango.threads import Threads
from hango.tools.failures import ErrorKind, Failure
from hango.tools.replay import MAY_HAVE, RECORDED, denied, once
from hango.tools.tool import Tool, as_result

UNKNOWN = "_unknown"  # label of names no registry knows: a model makes up as many as it likes
MAX_ECHO = 80  # bytes of a name or argument text that are told back

Bound: TypeAlias = Mapping[str, object]
"""Arguments as a tool's function takes them, by name."""

_log = logging.getLogger(__name__)


@attrs.define
class Registry:
    """All tools of a process; built once at start."""

    _tools: dict[str, Tool] = attrs.field(factory=dict, init=False)
    _threads: Threads = attrs.field(factory=Threads)

    def register(self, tool: Tool) -> None:
        """Add *tool*.

        Raises:
            RegistrationError: not a tool, or its name is taken.
        """
        if not isinstance(tool, Tool):
            kind = type(tool).__name__  # type: ignore[unreachable]  # plug-ins need not be typed
            raise RegistrationError(f"a {kind} is not a tool; make one with @hango.tool(effects=...)")
        if (other := self._tools.get(tool.name)) is not None:
            raise RegistrationError(
                f"tool {tool.name} of {tool.module}: the name is taken by the one of {other.module}"
            )
        self._tools[tool.name] = tool

    def names(self) -> tuple[str, ...]:
        """Return the names of all tools, sorted."""
        return tuple(sorted(self._tools))

    def view(self, allow: Sequence[str], *, timeout: float, result_limit: int) -> ToolSet:
        """Return the part of the tools that *allow* names; empty means all of them.

        Args:
            allow: names; those not registered are passed over.
            timeout: seconds one call may take; a tool's own limit holds when it is shorter.
            result_limit: bytes of UTF-8 a result may have.
        """
        chosen = {name: self._tools[name] for name in self.names() if not allow or name in allow}
        return ToolSet(chosen, frozenset(self._tools), self._threads, timeout, result_limit)


@attrs.frozen
class ToolSet:
    """The tools one agent may use.

    Attributes:
        _tools: by name, sorted; what is not here cannot be called.
        _registered: all names there are, for telling a forbidden tool from an invented one.
        _timeout: seconds.
        _result_limit: bytes.
    """

    _tools: Mapping[str, Tool]
    _registered: frozenset[str]
    _threads: Threads
    _timeout: float
    _result_limit: int

    def definitions(self) -> Sequence[ToolDefinition]:
        """Return what the model is told, by name, so that it is the same every time."""
        return tuple(tool.definition for tool in self._tools.values())

    # A tool that raises KeyboardInterrupt is a tool that failed.  Ctrl-C is not: under protection it
    # is raised in the main task, wherever it is pressed.
    @trio.lowlevel.enable_ki_protection
    async def call(self, call: ToolUseBlock, context: ToolContext, ledger: Ledger) -> Result:
        """Run one call, or tell what came of it before, if its tool must not just run twice.

        Every failure of the tool is an error result.  Cancelled midway, nothing comes back, whatever
        the tool makes of it.

        Raises:
            StoreError: as *ledger* does; of tools that are `read_only` or `idempotent` it is not asked.
        """
        bound = self._refusal(call) or self._bound(call)
        if isinstance(bound, Failure):
            return self._told(call.name, bound)
        tool = self._tools[call.name]
        body = partial(self._run, tool, bound, context)
        if tool.effects not in RECORDED:
            return await body()
        outcome = await once(tool, context, ledger, body)
        return self._told(tool.name, outcome) if isinstance(outcome, Failure) else outcome

    async def deny(
        self, call: ToolUseBlock, reason: str, context: ToolContext, ledger: Ledger
    ) -> Result:
        """Answer a call that a guardrail denies; its body does not start.

        But if it had been permitted, and begun, in an earlier execution, that is told.

        Raises:
            StoreError: as *ledger* does; of tools that are `read_only` or `idempotent` it is not asked.
        """
        tool = self._tools.get(call.name)
        denial = Failure(ErrorKind.DENIED, f"denied: {reason}")
        if tool is None or tool.effects not in RECORDED:
            return self._told(call.name, denial)
        outcome = await denied(tool, context, ledger, denial)
        return self._told(tool.name, outcome) if isinstance(outcome, Failure) else outcome

    def _refusal(self, call: ToolUseBlock) -> Failure | None:
        """Return why the call is not even tried."""
        tool = self._tools.get(call.name)
        if tool is None:
            known = call.name in self._registered
            kind = ErrorKind.NOT_ALLOWED if known else ErrorKind.UNKNOWN_TOOL
            offered = cut_text(", ".join(self._tools) or "none", MAX_MESSAGE // 2)
            return Failure(kind, f"unknown tool {_echo(call.name)}; available: {offered}")
        if call.raw_input is not None:
            return Failure(
                ErrorKind.INVALID_ARGUMENTS,
                f"the arguments are not a JSON object, so {tool.name} did not run: "
                f"{_echo(call.raw_input)}",
            )
        if tool.in_thread and self._threads.exhausted:
            return Failure(
                ErrorKind.STUCK_THREADS, f"{tool.name} did not run: too many calls hang already"
            )
        return None

    def _bound(self, call: ToolUseBlock) -> Bound | Failure:
        """Return the arguments as the tool takes them, or what is wrong with them."""
        try:
            return self._tools[call.name].bind(call.input)
        except BaseException as error:  # noqa: BLE001  # checking may run code of the tool's types
            return Failure.of(ErrorKind.INVALID_ARGUMENTS, error)

    async def _run(self, tool: Tool, bound: Bound, context: ToolContext) -> Result:
        """Run the tool's body, within its time."""
        seconds = self._timeout if tool.timeout is None else min(tool.timeout, self._timeout)
        with trio.move_on_after(seconds):
            outcome = await self._attempt(tool, bound, context)
            # A cancel that the tool swallowed, turned into another error or put into a group comes
            # back here, as itself: to the scope above if it was the timeout's, to the caller if not.
            await trio.lowlevel.checkpoint_if_cancelled()
            return self._told(tool.name, outcome)
        late = f"{tool.name} took longer than {seconds:g} s and was stopped"
        warning = f"; {MAY_HAVE}" if tool.effects in RECORDED else ""
        return self._told(tool.name, Failure(ErrorKind.TIMEOUT, late + warning))

    async def _attempt(self, tool: Tool, bound: Bound, context: ToolContext) -> Result | Failure:
        """Try the call; the border where whatever a tool raises becomes a value."""
        stage = ErrorKind.EXCEPTION
        try:
            value = await tool.invoke(bound, context, self._threads)
            stage = ErrorKind.INVALID_RESULT
            return as_result(value)
        except BaseException as error:  # noqa: BLE001  # SystemExit too; `_run` raises a cancel anew
            return Failure.of(stage, error)

    def _told(self, name: str, outcome: Result | Failure) -> Result:
        """Return *outcome* as the model gets it; report it if it is an error."""
        if isinstance(outcome, Failure):
            self._report(name, outcome)
            return Result(self._cut_error(outcome.message), is_error=True)
        if outcome.is_error:
            self._report(name, Failure(ErrorKind.TOOL_ERROR, ""))
        return self._cut(outcome)

    def _report(self, name: str, failure: Failure) -> None:
        """Count and log a failure: no arguments, no message, no made-up name."""
        label = name if name in self._registered else UNKNOWN
        metrics.tool_errors.add(1, {names.TOOL_NAME: label, names.ERROR_TYPE: failure.kind.value})
        level = logging.WARNING if failure.kind is ErrorKind.EXCEPTION else logging.INFO
        cause = f" ({failure.cause})" if failure.cause else ""
        fields = {names.TOOL_NAME: label, names.ERROR_TYPE: failure.kind.value}
        _log.log(level, "tool %s: %s%s", label, failure.kind.value, cause, extra=fields)

    def _cut(self, result: Result) -> Result:
        for_llm = cut_text(result.for_llm, self._result_limit)
        if result.is_error:
            for_llm = for_llm if for_llm.strip() else "the tool failed without saying why"
        for_user = None if result.for_user is None else cut_text(result.for_user, self._result_limit)
        return Result(for_llm, for_user, is_error=result.is_error)

    def _cut_error(self, message: str) -> str:
        return cut_text(message, min(MAX_MESSAGE, self._result_limit))


def _echo(text: str) -> str:
    """Quote what the model sent, bounded."""
    return f'"{cut_text(text, MAX_ECHO)}"'
