"""The loop: think, act, observe, until the model is done or something stops it.

Rule: an answer is stored before its tools run, and a turn is stored whole before the next begins, so
that whoever takes the run over repeats nothing.  Used by whoever executes runs, through `AgentLoop`.

Writes: the input has none of its own, it goes in front of the first message after it.  A turn with
tools makes two, the answer and the boundary; the last turn makes none, its answer is stored with the
state the run ends in.  A dangling call of an earlier run costs one more, before anything else, and a
call of a keyed or unsafe tool two, before and after it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import attrs

from hango.agent import outcomes
from hango.agent.accumulator import Accumulator, Answer
from hango.agent.completion import Completion, feedback, judge, rejections, result_of
from hango.agent.guardrails import Guardrail
from hango.agent.history import unanswered
from hango.agent.model_call import call_model, goes_on, run_error, stop_reason, unusable
from hango.agent.outcomes import Standing
from hango.agent.ports import EventSink, Provider, RunOptions, Toolbox, Transcript
from hango.agent.prompt import build_request
from hango.agent.resume import stored_answer, stored_turns
from hango.agent.tool_calls import Act
from hango.codec import blocks_from_json, blocks_to_json, clean_json
from hango.domain import (
    AttemptRejected,
    Block,
    ErrorCode,
    Interrupted,
    Ledger,
    NewMessage,
    RunError,
    RunOutcome,
    Scope,
    StopReason,
    TurnEnd,
    TurnStarted,
    Usage,
)
from hango.errors import ProviderError, VerifierError


@attrs.frozen
class LoopLimits:
    """Bounds of one run.

    Attributes:
        max_iterations: turns a run may have, rejected ones too, until it stops as `iteration_cap`.
        max_tokens: tokens of one answer; None leaves it to the provider.
        max_tool_calls: calls one answer may ask for; more fail the run.
        tools_at_once: calls of one turn that run at the same time.
        tries: provider calls for one answer, while nothing of it has arrived.
    """

    max_iterations: int = 20
    max_tokens: int | None = None
    max_tool_calls: int = 64
    tools_at_once: int = 8
    tries: int = 4


@attrs.define(eq=False, kw_only=True)
class AgentLoop:
    """One execution of one run; used once.

    Attributes:
        ledger: of the run's calls that must not just run again.
        usage: of the run's finished turns; moves on with each.
        scope: on whose behalf tools run.
        guardrails: asked before each tool call, in this order.
        completion: the gate a run that is done has to pass; None lets all pass.
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
    _finished: int = attrs.field(default=0, init=False)
    _input: NewMessage | None = attrs.field(default=None, init=False)
    # of the open turn: its answer while that is not stored, then what it cost
    _stream: Accumulator | None = attrs.field(default=None, init=False)
    _paid: Usage = attrs.field(factory=Usage, init=False)

    async def run(
        self,
        session_id: UUID,  # noqa: ARG002 - the signature is final; the transcript knows its session
        input: Sequence[Block],  # noqa: A002 - the word of the design
        emit: EventSink,
        options: RunOptions,
    ) -> RunOutcome | Interrupted:
        """Execute the run from its last finished turn on.

        Returns the outcome, still to be stored, or `Interrupted` when a turn boundary said that the
        run is cancelled or handed over.  Cancelled midway, all that was finished is stored, and
        `failed` and `interrupted` tell what else there is.

        Raises:
            StoreError: as transcript and ledger do; a `StateConflict` means that the run is not ours.
        """
        self._begin(input, options.resume_from)
        await self._answer_dangling()
        kept = stored_answer(self.transcript.messages, self.run_id, self._finished + 1)
        while kept is not None or self._finished < self.limits.max_iterations:
            try:
                answer = kept or await self._think(emit)
            except ProviderError as error:
                return self.failed(run_error(error, arrived=self._arrived()))
            ending = await self._take(answer, emit)
            if ending is not None:
                return ending
            kept = None
        standing = self._standing(self._finished, self.usage, None)
        return outcomes.capped(standing, self.limits.max_iterations, self.run_id, self._pending())

    def failed(self, error: RunError) -> RunOutcome:
        """Return what a run that fails with *error* now comes to: finished turns, and what arrived."""
        messages = self._unstored()
        usage = self.usage + (self._stream.usage if self._stream else self._paid)
        stopped = self._stream.answer().stop_reason if self._stream else None
        return outcomes.failed(self._standing(self._finished, usage, stopped), error, messages)

    def interrupted(self) -> Interrupted:
        """Return what an execution that was cancelled from outside comes to."""
        return Interrupted(self._unstored())

    # --- the start ------------------------------------------------------------------------

    def _begin(self, blocks: Sequence[Block], resume_from: int) -> None:
        self._finished = resume_from
        if (0, "user") not in self._stored():
            cleaned = blocks_from_json(clean_json(blocks_to_json(blocks)))
            self._input = NewMessage("user", cleaned, self.run_id, 0)

    async def _answer_dangling(self) -> None:
        """Store results for the calls an earlier run left open; the input follows them at once."""
        repairs = unanswered(self.transcript.messages, self.run_id)
        if repairs:
            await self.transcript.append([*repairs, *self._pending()])
            self._input = None

    # --- one turn -------------------------------------------------------------------------

    async def _think(self, emit: EventSink) -> Answer:
        turn = self._finished + 1
        request = build_request(
            [*self.transcript.messages, *self._pending()],
            provider=self.provider.name,
            model=self.model,
            system_prompt=self.system_prompt,
            tools=self.tools.definitions(),
            turn=turn,
            max_tokens=self.limits.max_tokens,
        )
        emit.emit(TurnStarted(self.run_id, turn))
        return await call_model(
            self.provider,
            request,
            run_id=self.run_id,
            emit=emit,
            tries=self.limits.tries,
            begin=self._open_stream,
        )

    def _open_stream(self) -> Accumulator:
        self._stream = Accumulator(self._finished + 1, self.limits.max_tool_calls)
        return self._stream

    async def _take(self, answer: Answer, emit: EventSink) -> RunOutcome | Interrupted | None:
        """Do what *answer* comes to; return how the run ends by it, None when another turn follows."""
        if refusal := unusable(answer, self.limits.max_tool_calls):
            return self.failed(refusal)
        if goes_on(answer):
            return await self._act(answer, emit)
        if self.completion is not None:
            return await self._judge(answer, self.completion, emit)
        final = () if self._stream is None else (*self._pending(), self._message(answer))
        return outcomes.done(self._ended_by(answer), final)

    async def _act(self, answer: Answer, emit: EventSink) -> Interrupted | None:
        """Store the answer, run its calls, store the boundary."""
        await self._keep(answer)
        act = Act(
            self.tools,
            self.ledger,
            emit,
            self.run_id,
            self._finished + 1,
            self.scope,
            self.limits.tools_at_once,
            self.guardrails,
        )
        return await self._end_turn(await act.results(answer.calls))

    async def _judge(
        self, answer: Answer, gate: Completion, emit: EventSink
    ) -> RunOutcome | Interrupted | None:
        """Store the answer, have the gate judge the run, and store what it rejects.

        Once stored, the answer is judged, by whoever takes the run over, and not bought again.
        """
        await self._keep(answer)
        standing, messages = self._ended_by(answer), self.transcript.messages
        result = result_of(messages, self.run_id, usage=standing.usage, turns=standing.turns)
        try:
            reason = await judge(gate.verify, result)
        except VerifierError as error:
            return outcomes.failed(standing, RunError(ErrorCode.VERIFIER_ERROR, str(error)))
        if reason is None:
            return outcomes.done(standing)
        standing = attrs.evolve(standing, rejections=standing.rejections.plus(reason))
        if standing.rejections.count >= gate.max_attempts:
            return outcomes.exhausted(standing)
        emit.emit(AttemptRejected(self.run_id, standing.turns, reason))
        return await self._end_turn(feedback(reason, answer.content), rejected=True)

    async def _keep(self, answer: Answer) -> None:
        """Store the answer, unless it was found stored."""
        if self._stream is not None:
            await self.transcript.append([*self._pending(), self._message(answer)])
        self._input = self._stream = None
        self._paid = answer.usage

    async def _end_turn(
        self, content: tuple[Block, ...], *, rejected: bool = False
    ) -> Interrupted | None:
        """Store the boundary: the turn's results, or what its gate said; returns as `_take`."""
        turn = self._finished + 1
        message = NewMessage("user", content, self.run_id, turn, synthetic=rejected)
        boundary = TurnEnd(turn, message, self.usage + self._paid, rejected)
        may_go_on = await self.transcript.end_turn(boundary)
        self._close_turn()
        return None if may_go_on else Interrupted()

    def _close_turn(self) -> None:
        self._finished += 1
        self.usage += self._paid
        self._paid = Usage()

    # --- where it stands ------------------------------------------------------------------

    def _standing(self, turns: int, usage: Usage, stopped: StopReason | None) -> Standing:
        before = rejections(self.transcript.messages, self.run_id)
        return Standing(turns, usage, before, stopped)

    def _ended_by(self, answer: Answer) -> Standing:
        """Return where the run stands if *answer* is its last."""
        usage = self.usage + answer.usage
        return self._standing(self._finished + 1, usage, stop_reason(answer))

    # --- what is stored, and what is not --------------------------------------------------

    def _pending(self) -> tuple[NewMessage, ...]:
        return () if self._input is None else (self._input,)

    def _stored(self) -> set[tuple[int | None, str]]:
        return stored_turns(self.transcript.messages, self.run_id)

    def _arrived(self) -> bool:
        return self._stream is not None and not self._stream.empty

    def _message(self, answer: Answer, *, partial: bool = False) -> NewMessage:
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
        """Return the input and what had arrived of the open answer, as far as neither is stored.

        A write may have been cancelled after it was done: the transcript knows.
        """
        stored = self._stored()
        if (self._finished + 1, "user") in stored:
            self._close_turn()
        messages = list(self._pending())
        if self._stream is not None and self._arrived():
            finished = self._stream.finished
            answer = self._stream.answer() if finished else self._stream.partial()
            if answer.content:
                messages.append(self._message(answer, partial=True))
        return tuple(m for m in messages if (m.turn, m.role) not in stored)
