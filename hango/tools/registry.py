"""The tools of a process, and the sets of them that agents may use.

Rule: no failure of a tool gets out of `ToolSet.call`: it is returned as an error result that is
bounded, clean and never empty.  Only `trio.Cancelled` and the ledger's errors are raised.  The
allow-list is checked here, at the call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import TypeAlias, cast

import attrs
import trio

from hango import watchdog
from hango.codec import cut_text, is_large
from hango.domain import Ledger, Result, ToolContext, ToolDefinition, ToolUseBlock
from hango.domain.tools import UNKNOWN_TOOL
from hango.errors import RegistrationError
from hango.safe_errors import MAX_MESSAGE
from hango.telemetry import metrics, names
from hango.telemetry.tool_spans import note_failure
from hango.threads import FunctionStuckError, Owner, RunInThread, Threads
from hango.tools.failures import CallFailure, ErrorKind
from hango.tools.replay import MAY_HAVE, RECORDED, denied, once
from hango.tools.tool import Tool, as_result

MAX_ECHO = 80  # bytes of a name or argument text that are quoted back to the model

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

    def with_tools(self, tools: Sequence[object]) -> Registry:
        """Return a registry with *tools* besides; its threads are those of this one.

        Raises:
            RegistrationError: as `register`.
        """
        both = Registry(self._threads)
        for tool in (*self._tools.values(), *tools):
            both.register(cast("Tool", tool))
        return both

    def names(self) -> tuple[str, ...]:
        """Return the names of all tools, sorted."""
        return tuple(sorted(self._tools))

    def view(self, allow: Sequence[str], *, timeout: float, result_limit: int) -> ToolSet:
        """Return the tools that *allow* names; empty means all.

        Args:
            allow: names; those not registered are left out.
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
        _registered: the names of all tools, to tell a forbidden one from one that does not exist.
        _timeout: seconds.
        _result_limit: bytes.
    """

    _tools: Mapping[str, Tool]
    _registered: frozenset[str]
    _threads: Threads
    _timeout: float
    _result_limit: int

    def definitions(self) -> Sequence[ToolDefinition]:
        """Return the definitions sent to the model, by name, so that they are the same every time."""
        return tuple(tool.definition for tool in self._tools.values())

    # A tool that raises KeyboardInterrupt is a tool that failed.  Ctrl-C is not: under protection it
    # is raised in the main task, whatever runs then.
    @trio.lowlevel.enable_ki_protection
    async def call(self, call: ToolUseBlock, context: ToolContext, ledger: Ledger) -> Result:
        """Run one call, or return its recorded result if its tool must not simply run twice.

        Every failure of the tool is an error result.  If the call is cancelled, `trio.Cancelled` is
        raised, whatever the tool does with it.

        Raises:
            StoreError: from *ledger*, which is not used for `read_only` and `idempotent` tools.
        """
        bound = self._refusal(call) or await self._bind(call, context)
        if isinstance(bound, CallFailure):
            return self._to_result(call.name, bound)
        tool = self._tools[call.name]
        try:
            # first, so that the call is recorded, and its time begins, when it really starts
            async with self._thread(tool, context) as run_in_thread:
                body = partial(self._run, tool, bound, context, run_in_thread)
                if tool.effects not in RECORDED:
                    return await body()
                outcome = await once(tool, context, ledger, body)
        except FunctionStuckError as error:
            outcome = CallFailure(ErrorKind.STUCK_THREADS, f"{tool.name} did not run: {error}")
        return self._to_result(tool.name, outcome) if isinstance(outcome, CallFailure) else outcome

    def _thread(self, tool: Tool, context: ToolContext) -> AbstractAsyncContextManager[RunInThread]:
        """Wait for a thread, as long as the run may; less if calls of this very tool are stuck."""
        if not tool.in_thread:
            return nullcontext(_run_nowhere)
        return self._threads.reserve(_owner(tool.name, context), patience=self._seconds(tool))

    async def deny(
        self, call: ToolUseBlock, reason: str, context: ToolContext, ledger: Ledger
    ) -> Result:
        """Answer a call that a guardrail denied; the tool does not run.

        If an earlier execution had permitted and started the call, the answer says so.

        Raises:
            StoreError: from *ledger*, which is not used for `read_only` and `idempotent` tools.
        """
        tool = self._tools.get(call.name)
        denial = CallFailure(ErrorKind.DENIED, f"denied: {reason}")
        if tool is None or tool.effects not in RECORDED:
            return self._to_result(call.name, denial)
        outcome = await denied(tool, context, ledger, denial)
        return self._to_result(tool.name, outcome) if isinstance(outcome, CallFailure) else outcome

    def _refusal(self, call: ToolUseBlock) -> CallFailure | None:
        """Return why the call cannot run; None when it can."""
        tool = self._tools.get(call.name)
        if tool is None:
            known = call.name in self._registered
            kind = ErrorKind.NOT_ALLOWED if known else ErrorKind.UNKNOWN_TOOL
            offered = cut_text(", ".join(self._tools) or "none", MAX_MESSAGE // 2)
            return CallFailure(kind, f"{UNKNOWN_TOOL} {_echo(call.name)}; available: {offered}")
        if call.raw_input is not None:
            return CallFailure(
                ErrorKind.INVALID_ARGUMENTS,
                f"the arguments are not a JSON object, so {tool.name} did not run: "
                f"{_echo(call.raw_input)}",
            )
        return None

    async def _bind(self, call: ToolUseBlock, context: ToolContext) -> Bound | CallFailure:
        """Check the arguments; so many that it would hold the event loop, in a thread."""
        if not is_large(call.input):
            return self._bound(call)
        bound = await self._threads.run(partial(self._bound, call), _owner(call.name, context))
        return cast("Bound | CallFailure", bound)

    def _bound(self, call: ToolUseBlock) -> Bound | CallFailure:
        """Return the arguments for the function, or what is wrong with them."""
        try:
            return self._tools[call.name].bind(call.input)
        except BaseException as error:  # noqa: BLE001  # checking may run code of the tool's types
            return CallFailure.of(ErrorKind.INVALID_ARGUMENTS, error)

    def _seconds(self, tool: Tool) -> float:
        return self._timeout if tool.timeout is None else min(tool.timeout, self._timeout)

    async def _run(
        self, tool: Tool, bound: Bound, context: ToolContext, run_in_thread: RunInThread
    ) -> Result:
        """Run the tool's function within its time limit."""
        seconds = self._seconds(tool)
        with trio.move_on_after(seconds):
            outcome = await self._attempt(tool, bound, context, run_in_thread)
            # The tool may have swallowed a cancel, or raised another error or a group instead.  Here it
            # is raised again: it ends at the scope above if it was the timeout's, else at the caller.
            await trio.lowlevel.checkpoint_if_cancelled()
            return self._to_result(tool.name, outcome)
        late = f"{tool.name} took longer than {seconds:g} s and was stopped"
        warning = f"; {MAY_HAVE}" if tool.effects in RECORDED else ""
        return self._to_result(tool.name, CallFailure(ErrorKind.TIMEOUT, late + warning))

    async def _attempt(
        self, tool: Tool, bound: Bound, context: ToolContext, run_in_thread: RunInThread
    ) -> Result | CallFailure:
        """Run the function; whatever it raises becomes a value."""
        stage = ErrorKind.EXCEPTION
        try:
            with watchdog.in_progress(f"tool {tool.name}"):
                value = await tool.invoke(bound, context, run_in_thread)
            stage = ErrorKind.INVALID_RESULT
            return as_result(value)
        except BaseException as error:  # noqa: BLE001  # SystemExit too; `_run` raises a cancel anew
            return CallFailure.of(stage, error)

    def _to_result(self, name: str, outcome: Result | CallFailure) -> Result:
        """Return the result for the model; count and log it if it is an error."""
        if isinstance(outcome, CallFailure):
            self._report(name, outcome)
            return Result(self._cut_error(outcome.message), is_error=True)
        if outcome.is_error:
            self._report(name, CallFailure(ErrorKind.TOOL_ERROR, ""))
        return self._cut(outcome)

    def _report(self, name: str, failure: CallFailure) -> None:
        """Count and log a failure, without arguments, message or unregistered names."""
        label = name if name in self._registered else names.UNKNOWN
        note_failure(failure.kind.value)
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


async def _run_nowhere(function: Callable[[], object]) -> object:
    raise AssertionError(f"{function} is async, and needs no thread")


def _owner(tool: str, context: ToolContext) -> Owner:
    return Owner(context.scope.tenant_id if context.scope else None, tool)


def _echo(text: str) -> str:
    """Quote what the model sent, bounded."""
    return f'"{cut_text(text, MAX_ECHO)}"'
