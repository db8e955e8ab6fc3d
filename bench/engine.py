"""Hango whole, in one process: create → claim → actor → loop → settle, and the loop alone in memory."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from uuid import UUID

import attrs
import trio

from bench.samples import Meter, Sample, Window, counting_commits
from hango.actors import WorkerSettings
from hango.agent import AgentLoop, ExecutionOptions, LoopLimits, SessionHistory
from hango.agent.memory import MemoryLedger, MemoryTranscript
from hango.agent.ports import NULL_SINK
from hango.db.pool import Pool, open_pool
from hango.domain import (
    BlockStart,
    BlockStop,
    InputDelta,
    MessageRole,
    NewMessage,
    ProviderEvent,
    ProviderRequest,
    Run,
    RunEvent,
    RunOutcome,
    RunState,
    Session,
    Stop,
    StopReason,
    Streamed,
    TextBlock,
    TextDelta,
    ToolUseBlock,
    Usage,
    UsageUpdate,
    new_id,
)
from hango.testing.databases import sql
from hango.testing.seeded_tenant import SeededTenant, make_seeded_tenant
from hango.testing.workers import registry_of, running_worker
from hango.tools import tool

MAX_LIVE = 100_000  # runs of one session; enough for all that is queued here
_RUNS = 3  # measured runs of a session in memory
_USAGE = Usage(input_tokens=10, output_tokens=5)


@tool(effects="read_only")
async def lookup(key: str) -> str:
    """Look a key up.

    Args:
        key: what to look up.
    """
    return f"{key} is 1"


_TOOLS = registry_of(lookup)


@attrs.define
class NoDelayProvider:
    """A model that answers at once: a call of `lookup` in each turn, and a text in the last.

    Attributes:
        turns: of each run.
        called_at: when it was called (`time.monotonic`), if that is to be kept.
    """

    turns: int
    called_at: list[float] | None = None
    name: str = "bench"
    _ids: Iterator[int] = attrs.field(factory=count, init=False)

    @asynccontextmanager
    async def stream(self, request: ProviderRequest) -> AsyncIterator[AsyncIterator[ProviderEvent]]:
        """Answer *request*."""
        if self.called_at is not None:
            self.called_at.append(time.monotonic())
        yield self._call() if request.turn < self.turns else self._text()

    async def _call(self) -> AsyncIterator[ProviderEvent]:
        yield BlockStart(0, ToolUseBlock(f"call_{next(self._ids)}", "lookup"))
        yield InputDelta(0, '{"key": ')
        yield InputDelta(0, '"alpha"}')
        yield BlockStop(0)
        yield UsageUpdate(_USAGE)
        yield Stop(StopReason.TOOL_USE)

    async def _text(self) -> AsyncIterator[ProviderEvent]:
        yield BlockStart(0, TextBlock(""))
        yield TextDelta(0, "All is done: ")
        yield TextDelta(0, "alpha is 1.")
        yield BlockStop(0)
        yield UsageUpdate(_USAGE)
        yield Stop(StopReason.END_TURN)


# --- the whole ------------------------------------------------------------------------------


@attrs.define(eq=False)
class Ends:
    """Waits for the ends of runs without reading them: a last answer, then a notification."""

    _pool: Pool
    _answered: set[UUID] = attrs.field(factory=set, init=False)
    _waiting: dict[UUID, trio.Event] = attrs.field(factory=dict, init=False)

    def emit(self, event: RunEvent) -> None:
        """Note the last answer of a run."""
        match event:
            case Streamed(run_id, event=Stop(StopReason.END_TURN)):
                self._answered.add(run_id)

    async def listen(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Wake those whose runs have ended."""
        async with self._pool.listen() as notifications:
            task_status.started()
            async for notification in notifications:
                if notification is None:
                    raise AssertionError("notifications were missed, so ends would be")
                if notification.run_id in self._answered:
                    self._answered.discard(notification.run_id)
                    self._ended(notification.run_id).set()

    async def wait(self, run: Run) -> None:
        """Wait until *run* has ended."""
        await self._ended(run.id).wait()
        del self._waiting[run.id]

    def _ended(self, run_id: UUID) -> trio.Event:
        return self._waiting.setdefault(run_id, trio.Event())


async def engine(dsn: str, *, sessions: int, turns: int, seconds: float, history: int = 0) -> Sample:
    """Measure runs of *turns* turns, one after another in each of *sessions* sessions.

    Args:
        dsn: an empty database with hango's schema.
        sessions: how many have a run at any time.
        turns: of each run.
        seconds: the window, after one run of each session.
        history: messages that each session has before.
    """
    sample = Sample()
    with Meter.open(dsn) as meter:
        async with open_pool(dsn) as pool:
            world = await make_seeded_tenant(pool, provider="bench")
            opened = [await world.session() for _ in range(sessions)]
            if history:
                await _write_history(pool, history)
        with counting_commits(meter, sample):
            async with open_pool(dsn) as pool:
                world = attrs.evolve(world, pool=pool)
                runs = await _drive(world, opened, turns, seconds, sample, Window(meter))
        await _check(dsn, runs, turns, history * sessions)
        sample.all_turns = runs * turns
    return sample


async def _drive(
    world: SeededTenant,
    sessions: Sequence[Session],
    turns: int,
    seconds: float,
    sample: Sample,
    window: Window,
) -> int:
    """Run all *sessions* until the time is up; return how many runs there were."""
    ends, finished = Ends(world.pool), 0
    provider = NoDelayProvider(turns)
    settings = WorkerSettings(workers=len(sessions), max_iterations=turns)

    async def one(session: Session) -> None:
        nonlocal finished
        began = time.perf_counter()
        await ends.wait(await world.run(session, max_live=MAX_LIVE))
        sample.latencies.append((time.perf_counter() - began) * 1000)
        finished += 1

    async def repeat(session: Session, until: float) -> None:
        while time.perf_counter() < until:
            await one(session)

    async with (
        running_worker(world.pool, {"bench": provider}, lookup, settings=settings, events=ends),
        trio.open_nursery() as nursery,
    ):
        await nursery.start(ends.listen)
        async with trio.open_nursery() as warming:
            for session in sessions:
                warming.start_soon(one, session)
        warmed, sample.latencies = finished, []
        window.start()
        async with trio.open_nursery() as running:
            for session in sessions:
                running.start_soon(repeat, session, time.perf_counter() + seconds)
        window.stop(sample, (finished - warmed) * turns)
        nursery.cancel_scope.cancel()
    return finished


async def _write_history(pool: Pool, messages: int) -> None:
    """Give each session that many messages, of the user and the assistant by turns."""
    await sql(
        pool,
        """insert into messages (id, tenant_id, session_id, seq, role, content)
           select gen_random_uuid(), tenant_id, id, n,
                  case n % 2 when 1 then 'user' else 'assistant' end,
                  json_build_array(json_build_object('type', 'text', 'text', 'earlier message ' || n))
             from sessions, generate_series(1, $1) as n""",
        messages,
    )
    await sql(pool, "update sessions set last_seq = $1", messages)


async def _check(dsn: str, runs: int, turns: int, before: int) -> None:
    """Refuse a measurement that did not do all of its work."""
    async with open_pool(dsn, size=1) as pool:
        [row] = await sql(
            pool,
            """select (select count(*) from runs where state = 'succeeded') as done,
                      (select count(*) from runs) as runs,
                      (select count(*) from messages) as messages""",
        )
    found = (row["done"], row["runs"], row["messages"])
    if found != (runs, runs, runs * 2 * turns + before):
        raise AssertionError(f"{runs} runs of {turns} turns left (done, runs, messages) = {found}")


# --- the loop alone -------------------------------------------------------------------------


async def loop_in_memory(*, turns: int, history: int, sessions: int) -> Sample:
    """Measure the loop without a database: runs in *sessions* sessions, *history* messages old.

    The first run of a session is not measured: it reads the history, as a process does that has just
    claimed the session.
    """
    sample = Sample()
    for _ in range(sessions):
        transcript, kept = await _old_session(history), SessionHistory()
        await _run_in_memory(transcript, kept, turns)
        began = time.process_time()
        for _ in range(_RUNS):
            await _run_in_memory(transcript, kept, turns)
        sample.python_ms += (time.process_time() - began) * 1000
        sample.turns += _RUNS * turns
        if len(transcript.messages) != history + (1 + _RUNS) * turns * 2:
            raise AssertionError(f"a session of {history} messages has {len(transcript.messages)}")
    return sample


async def _old_session(history: int) -> MemoryTranscript:
    transcript = MemoryTranscript()
    roles: tuple[MessageRole, MessageRole] = ("user", "assistant")
    await transcript.append(
        [NewMessage(roles[n % 2], (TextBlock(f"earlier message {n}"),)) for n in range(history)]
    )
    return transcript


async def _run_in_memory(transcript: MemoryTranscript, kept: SessionHistory, turns: int) -> None:
    """Run once more in the session, with what its actor would have kept."""
    loop = AgentLoop(
        run_id=new_id(),
        provider=NoDelayProvider(turns),
        tools=_TOOLS.view((), timeout=30.0, result_limit=1 << 18),
        transcript=transcript,
        ledger=MemoryLedger(),
        model="model-1",
        system_prompt="",
        limits=LoopLimits(max_iterations=turns),
        scope=None,
        usage=Usage(),
        history=kept,
    )
    outcome = await loop.run(new_id(), (TextBlock("hello"),), NULL_SINK, ExecutionOptions())
    if not (isinstance(outcome, RunOutcome) and outcome.state is RunState.SUCCEEDED):
        raise AssertionError(f"the run ended as {outcome}")
    await transcript.append(outcome.messages)
