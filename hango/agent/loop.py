"""The agent loop: ask the model, run its tools, until it is done or something stops it.

Rule: an answer is stored before its tools run, and a turn is stored completely before the next begins,
so a process that takes over a run repeats nothing that is finished.

Writes: one for the results of a dangling call of an earlier run; per turn with tools one for the answer
and one for the turn's end, and two for each call of a keyed or unsafe tool.  The run's input is stored
with the first of these; the last answer is stored with the state in which the run ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import attrs

from hango.agent import outcomes
from hango.agent.accumulator import Accumulator, ModelAnswer
from hango.agent.callbacks import CallbackThreads, TenantThreads
from hango.agent.completion import Completion, feedback, judge, rejections, result_of
from hango.agent.guardrails import Guardrail
from hango.agent.history import SessionHistory, dangling_call_results
from hango.agent.model_call import (
    call_model,
    run_error,
    runs_tools,
    stop_reason,
    stored_answer,
    unusable,
)
from hango.agent.outcomes import RunTotals
from hango.agent.ports import (
    NULL_SINK,
    EventSink,
    ExecutionOptions,
    LoopLimits,
    Provider,
    Toolbox,
    Transcript,
)
from hango.agent.provider_border import provider_name
from hango.agent.tool_calls import run_tool_calls
from hango.codec import blocks_from_json, blocks_to_json, clean_json, clean_text
from hango.domain import (
    AttemptRejected,
    Block,
    ErrorCode,
    Interrupted,
    Ledger,
    Message,
    ModelOptions,
    NewMessage,
    ProviderRequest,
    RunError,
    RunOutcome,
    Scope,
    ToolContext,
    TurnEnd,
    TurnStarted,
    Usage,
)
from hango.errors import ProviderError, VerifierError


@attrs.define(eq=False, kw_only=True)
class AgentLoop:
    """One execution of one run; `run` is called once.

    Attributes:
        run_id: the run.
        provider: answers.
        tools: those the agent may use.
        transcript: the session's messages; what the run says is written there.
        ledger: records the calls that must not simply run twice.
        model: the name that the provider is given.
        system_prompt: the agent's own text; empty for none.
        limits: bounds of the run.
        scope: tenant and user that tools act for; None outside a database.
        usage: tokens of the run's finished turns; grows with each.
        guardrails: asked before each tool call, in this order.
        completion: the gate that a run has to pass before it is done; None for no gate.
        threads: where sync guardrails and verifiers run.
        history: what earlier runs of the session have found out about its messages, or nothing yet.
        options: what the agent asks of the model.
        _events: told of the run's progress.
        _finished: turns that are finished and stored.
        _input: the run's input while it is not stored; then empty.
        _stream: the open turn's answer as it arrives; None once it is stored.
        _billed: tokens of the open turn's stored answer; not yet in `usage`.
    """

    run_id: UUID
    provider: Provider
    tools: Toolbox
    transcript: Transcript
    ledger: Ledger
    model: str
    system_prompt: str
    limits: LoopLimits
    scope: Scope | None
    usage: Usage
    guardrails: Sequence[Guardrail] = ()
    completion: Completion | None = None
    threads: CallbackThreads = attrs.field(factory=CallbackThreads)
    history: SessionHistory = attrs.field(factory=SessionHistory)
    options: ModelOptions = attrs.field(factory=ModelOptions)
    _events: EventSink = attrs.field(default=NULL_SINK, init=False)
    _finished: int = attrs.field(default=0, init=False)
    _input: tuple[NewMessage, ...] = attrs.field(default=(), init=False)
    _stream: Accumulator | None = attrs.field(default=None, init=False)
    _billed: Usage = attrs.field(factory=Usage, init=False)

    async def run(
        self,
        session_id: UUID,  # noqa: ARG002 - the signature is final; the transcript knows its session
        input: Sequence[Block],  # noqa: A002 - the word of the design
        emit: EventSink,
        options: ExecutionOptions,
    ) -> RunOutcome | Interrupted:
        """Execute the run from its last finished turn on.

        Returns the outcome, which the caller stores, or `Interrupted` if the end of a turn found the
        run cancelled or to be handed over.  Cancelled midway, everything finished is stored; `failed`
        and `interrupted` return the rest.

        Raises:
            StoreError: as transcript and ledger do; a `StateConflict` means that the run is not ours.
        """
        self._events, self._finished = emit, options.resume_from
        await self._start(input)
        answer = stored_answer(self._own(), self.run_id, self._finished + 1)
        while answer is not None or self._finished < self.limits.max_iterations:
            try:
                answer = answer or await self._request_answer()
            except ProviderError as error:
                return self.failed(run_error(error, arrived=self._arrived()))
            ended = await self._process(answer)
            if ended is not None:
                return ended
            answer = None
        cap = self.limits.max_iterations
        return outcomes.at_iteration_cap(self._totals(), cap, self.run_id, self._input)

    def failed(self, error: RunError) -> RunOutcome:
        """Return the outcome of a run that fails with *error* now, with what is not stored yet."""
        messages = self._unstored()
        usage = self.usage + ((self._stream.usage or Usage()) if self._stream else self._billed)
        stopped = self._stream.answer().stop_reason if self._stream else None
        totals = attrs.evolve(self._totals(), usage=usage, stop_reason=stopped)
        return outcomes.failed(totals, error, messages)

    def interrupted(self) -> Interrupted:
        """Return what is not stored yet of an execution that was cancelled from outside."""
        return Interrupted(self._unstored())

    async def _start(self, blocks: Sequence[Block]) -> None:
        """Prepare the input, and store results for calls that an earlier run left without one."""
        own = self._own()
        if (0, "user") not in _places(own):
            cleaned = blocks_from_json(clean_json(blocks_to_json(blocks)))
            self._input = (NewMessage("user", cleaned, self.run_id, 0),)
        repairs = () if own else dangling_call_results(self.transcript.messages)
        if repairs:  # the input in the same write, so that it follows at once
            await self.transcript.append([*repairs, *self._input])
            self._input = ()

    # --- one turn -------------------------------------------------------------------------

    async def _request_answer(self) -> ModelAnswer:
        turn = self._finished + 1
        unstored = self._input[0].content if self._input else ()
        request = ProviderRequest(
            model=self.model,
            system=clean_text(self.system_prompt),
            messages=self.history.prompt(
                self.transcript.messages, provider_name(self.provider), unstored
            ),
            tools=tuple(self.tools.definitions()),
            turn=turn,
            max_tokens=self.options.max_tokens_within(self.limits.max_tokens),
            options=self.options.in_turn(turn),
        )
        self._events.emit(TurnStarted(self.run_id, turn))
        return await call_model(
            self.provider,
            request,
            run_id=self.run_id,
            events=self._events,
            tries=self.limits.tries,
            stream_retries=self.limits.stream_retries,
            new_accumulator=self._new_accumulator,
        )

    def _new_accumulator(self, lost: Usage | None) -> Accumulator:
        self._stream = Accumulator(self._finished + 1, self.limits.max_tool_calls, lost)
        return self._stream

    async def _process(self, answer: ModelAnswer) -> RunOutcome | Interrupted | None:
        """Act on *answer*; return how the run ended, or None if another turn follows."""
        if refusal := unusable(answer, self.limits.max_tool_calls):
            return self.failed(refusal)
        if runs_tools(answer):
            return await self._run_tools(answer)
        if self.completion is not None:
            return await self._judge(answer, self.completion)
        final = () if self._stream is None else (*self._input, self._message(answer))
        return outcomes.done(self._totals(answer), final)

    async def _run_tools(self, answer: ModelAnswer) -> Interrupted | None:
        await self._store_answer(answer)
        turn = self._finished + 1
        calls = [
            (call, ToolContext(self.run_id, turn, ordinal, call.id, self.scope))
            for ordinal, call in enumerate(answer.calls)
        ]
        results = await run_tool_calls(
            calls,
            tools=self.tools,
            ledger=self.ledger,
            guardrails=self.guardrails,
            threads=TenantThreads.of(self.threads.guardrails, self.scope),
            events=self._events,
            at_once=self.limits.tools_at_once,
        )
        return await self._end_turn(results)

    async def _judge(self, answer: ModelAnswer, gate: Completion) -> RunOutcome | Interrupted | None:
        """Ask the gate whether the run is complete.

        The answer is stored first, so after a crash it is judged and not requested again.
        """
        await self._store_answer(answer)
        totals = self._totals(answer)
        result = result_of(self._own(), self.run_id, usage=totals.usage, turns=totals.turns)
        try:
            reason = await judge(
                gate.verify, result, TenantThreads.of(self.threads.verifiers, self.scope)
            )
        except VerifierError as error:
            return outcomes.failed(totals, RunError(ErrorCode.VERIFIER_ERROR, str(error)))
        if reason is None:
            return outcomes.done(totals)
        totals = attrs.evolve(totals, rejections=totals.rejections.plus(reason))
        if totals.rejections.count >= gate.max_attempts:
            return outcomes.out_of_attempts(totals)
        self._events.emit(AttemptRejected(self.run_id, totals.turns, reason))
        return await self._end_turn(feedback(reason, answer.content), rejected=True)

    async def _store_answer(self, answer: ModelAnswer) -> None:
        """Store the answer, unless it came from the transcript."""
        if self._stream is not None:
            await self.transcript.append([*self._input, self._message(answer)])
        self._input, self._stream, self._billed = (), None, answer.billed

    async def _end_turn(
        self, content: tuple[Block, ...], *, rejected: bool = False
    ) -> Interrupted | None:
        """Store the end of the turn: its tool results, or the gate's feedback."""
        turn = self._finished + 1
        message = NewMessage("user", content, self.run_id, turn, synthetic=rejected)
        boundary = TurnEnd(turn, message, self.usage + self._billed, rejected)
        may_go_on = await self.transcript.end_turn(boundary)
        self._count_turn()
        return None if may_go_on else Interrupted()

    def _count_turn(self) -> None:
        self._finished += 1
        self.usage += self._billed
        self._billed = Usage()

    # --- what has happened so far ---------------------------------------------------------

    def _totals(self, last: ModelAnswer | None = None) -> RunTotals:
        """Return the totals of the finished turns; of the open one too if its answer is the *last*."""
        before = rejections(self._own(), self.run_id)
        if last is None:
            return RunTotals(self._finished, self.usage, before)
        return RunTotals(self._finished + 1, self.usage + last.billed, before, stop_reason(last))

    def _own(self) -> Sequence[Message]:
        """Return the run's stored messages, oldest first."""
        self.history.follow(self.transcript.messages)
        return self.history.of_run(self.run_id)

    def _arrived(self) -> bool:
        return self._stream is not None and not self._stream.empty

    def _message(self, answer: ModelAnswer, *, partial: bool = False) -> NewMessage:
        return NewMessage(
            "assistant",
            answer.content,
            self.run_id,
            self._finished + 1,
            stop_reason=answer.stop_reason if partial else stop_reason(answer),
            usage=answer.usage,
            partial=partial,
        )

    def _unstored(self) -> tuple[NewMessage, ...]:
        """Return the input and the part of the open answer that has arrived, unless stored.

        A write that was cancelled may have been done all the same: the transcript decides.
        """
        stored = _places(self._own())
        if (self._finished + 1, "user") in stored:
            self._count_turn()
        messages = list(self._input)
        if self._stream is not None and self._arrived():
            finished = self._stream.finished
            answer = self._stream.answer() if finished else self._stream.partial()
            if answer.content:
                messages.append(self._message(answer, partial=True))
        return tuple(m for m in messages if (m.turn, m.role) not in stored)


def _places(messages: Sequence[Message]) -> set[tuple[int | None, str]]:
    """Return turn and role of each of a run's messages; turn 0 is its input."""
    return {(message.turn, message.role) for message in messages}
