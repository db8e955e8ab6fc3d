"""What is done with processes that end, or freeze, anywhere; and what is left of their runs.

Its one rule: two outcomes are compared by all that a user could see; only ids, times and owners differ.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import pytest

from hango.db.queries import Row
from hango.domain import Effects, Run, Session, new_id
from hango.store.agents import Agents, NewAgent
from hango.testing.plugin import SeededTenant, sql

from support.crash_scenarios import EarlierRun, Scenario
from support.crashing_process import CrashPoint, ProcessPlan
from support.crashing_tools import DIED, GATE, TOOLS, WITH_HEARTBEAT, CrashingTools, ProcessFault
from support.fork_server import ForkServer
from support.recording_tools import UNKNOWN_RESULT
from support.workers import started_worker, until

_MESSAGES = """
select m.seq, r.session_seq as run, m.turn, m.role, m.content::text, m.stop_reason, m.usage::text,
       m.partial, m.synthetic
  from messages m left join runs r on r.id = m.run_id
 where m.session_id = $1
 order by m.seq
"""
_RUNS = """
select session_seq, state, stop_reason, stopped_by, error_code, error, iterations, resume_turn,
       usage::text, attempts, cancel_requested_at is not null as cancel_requested,
       (select seq from messages m where m.id = final_message_id) as final
  from runs where session_id = $1
 order by session_seq
"""
_SEQ = "select last_seq, next_run_seq from sessions where id = $1"


@attrs.frozen
class VisibleState:
    """All that a user could see of a session, but ids and times."""

    messages: Sequence[Mapping[str, object]]
    runs: Sequence[Mapping[str, object]]
    counters: Sequence[Mapping[str, object]]

    @property
    def ends(self) -> tuple[object, ...]:
        """The states of the runs, in their order."""
        return tuple(run["state"] for run in self.runs)

    @property
    def stored(self) -> str:
        """The messages, as `Scenario` tells them."""
        return " ".join(
            f"{m['run']}.{m['turn']}{str(m['role'])[0]}{'s' if m['synthetic'] else ''}"
            for m in self.messages
        )


@attrs.frozen
class CompletedWork:
    """What was done when a process ended: what must not be done again.

    Attributes:
        marks: answers that are stored, and calls that have a stored result or an ended turn.
        unknown: calls of unsafe tools that were begun and have no result: run, turn and ordinal.
        length: marks in the journal so far.
    """

    marks: frozenset[str]
    unknown: frozenset[tuple[int, int, int]]
    length: int


@attrs.frozen
class ScenarioRun:
    """One performance of a scenario.

    Attributes:
        journal: of its processes, one after the other.
        runs: in their order, once they are queued.
    """

    scenario: Scenario
    world: SeededTenant
    database: str
    session: Session
    journal: Path
    runs: list[Run] = attrs.field(factory=list)

    def life(self, cut: CrashPoint | None = None) -> ProcessPlan:
        """Return the life of the process that the scenario is about."""
        fates = dict(self.scenario.fates)
        return ProcessPlan(self.database, self.session.id, str(self.journal), fates, cut=cut)

    def marks(self) -> list[str]:
        """Read the journal, oldest first."""
        return self.journal.read_text("utf-8").splitlines() if self.journal.exists() else []

    async def queue_up(self) -> None:
        """Queue the runs."""
        for prompt in self.scenario.prompts:
            self.runs.append(await self.world.run(self.session, prompt))

    async def begin(self) -> None:
        """Queue the runs; or have the lease lapse of the process that died in the first of them."""
        if self.scenario.left is None:
            await self.queue_up()
        if self.scenario.left is EarlierRun.CANCELLED:
            await self.world.runs.cancel(self.world.scope(), self.runs[0].id)
        if self.scenario.left is EarlierRun.CRASH_LOOP:
            await self._sql("update runs set reclaims = 9 where session_id = $1 and state = 'running'")
        await self.lapse()

    async def lapse(self) -> None:
        """Let the lease of the session's running run lapse."""
        await self._sql(
            "update runs set lease_expires_at = now() - interval '1 second'"
            " where session_id = $1 and state = 'running'"
        )

    async def recover(self) -> None:
        """Take the runs back and execute them to their end, in this very process."""
        await self.lapse()
        await self.world.queue().sweep()
        await self._sql("update runs set not_before = null where session_id = $1")  # a pause goes by
        fates = self.scenario.fates.items()
        body = CrashingTools(
            self.world.pool, dict(each for each in fates if each[1] is ProcessFault.CANCEL)
        )
        provider = body.provider
        async with started_worker(
            self.world,
            {"scripted": provider},
            *body.tools,
            settings=WITH_HEARTBEAT,
            verifiers=body.verifiers,
        ):
            await until(self.world, self.runs)
        assert provider.complaints == []

    async def unfinished(self) -> bool:
        """Tell whether a run of the session has not ended."""
        live = "select from runs where session_id = $1 and finished_at is null"
        return bool(await self._sql(live))

    async def outcome(self) -> VisibleState:
        """Read what a user could see."""
        messages = [_parsed(row) for row in await self._sql(_MESSAGES)]
        runs = [_parsed(row) for row in await self._sql(_RUNS)]
        return VisibleState(messages, runs, [dict(row) for row in await self._sql(_SEQ)])

    async def crashed(self) -> CompletedWork:
        """Read, after a process has ended and before another begins, what is done."""
        names = [prompt.split()[0] for prompt in self.scenario.prompts]
        answers = await self._sql(
            "select session_seq, m.turn from messages m join runs r on r.id = run_id"
            " where m.session_id = $1 and role = 'assistant' and not synthetic"
        )
        done = {f"provider {names[row['session_seq'] - 1]} {row['turn']}" for row in answers}
        effects = await self._sql(
            "select session_seq, run_id, turn, ordinal, tool, effects, e.state from tool_effects e"
            " join runs r on r.id = run_id where session_id = $1"
        )
        done |= {_mark(row) for row in effects if row["state"] == "finished"}
        unknown = {
            (row["session_seq"], row["turn"], row["ordinal"])
            for row in effects
            if (row["effects"], row["state"]) == ("unsafe", "started")
        }
        ended = await self._sql("select id, resume_turn from runs where session_id = $1")
        finished = {str(row["id"]): row["resume_turn"] for row in ended}
        marks = self.marks()
        done |= {mark for mark in marks if _turn(mark) <= finished.get(_run(mark), -1)}
        return CompletedWork(frozenset(done), frozenset(unknown), len(marks))

    async def _sql(self, text: str) -> Sequence[Row]:
        return await sql(self.world.pool, text, self.session.id)


def _parsed(row: Row) -> Mapping[str, object]:
    values = dict(row)
    return values | {
        name: json.loads(values[name]) for name in ("content", "usage") if values.get(name)
    }


def _mark(row: Row) -> str:
    return f"{row['tool']} {row['run_id']}:{row['turn']}:{row['ordinal']}"


def _run(mark: str) -> str:
    """Return the run that a tool's mark names; of another mark, something that is none."""
    return mark.split()[1].split(":", maxsplit=1)[0]


def _turn(mark: str) -> int:
    return int(mark.split(":")[1]) if ":" in mark else 0


def with_unknown_results(
    outcome: VisibleState, unknown: frozenset[tuple[int, int, int]]
) -> VisibleState:
    """Return *outcome* as it is when nobody knows what became of the calls *unknown*."""

    def told(message: Mapping[str, object]) -> Mapping[str, object]:
        content = message["content"]
        assert isinstance(content, list)
        if message["role"] != "user":
            return message
        blocks = [
            block | {"content": f"post {UNKNOWN_RESULT}", "is_error": True}
            if (message["run"], message["turn"], ordinal) in unknown and block["type"] == "tool_result"
            else block
            for ordinal, block in enumerate(content)
        ]
        return {**message, "content": blocks}

    return attrs.evolve(outcome, messages=[told(message) for message in outcome.messages])


def repeated(marks: Sequence[str]) -> list[str]:
    """Return the marks that are there more than once."""
    return [mark for mark, count in Counter(marks).items() if count > 1]


def unsafe(marks: Sequence[str]) -> list[str]:
    """Return the marks of tools that must not run again."""
    return [mark for mark in marks if TOOLS.get(mark.split()[0]) is Effects.UNSAFE]


@attrs.define
class CrashHarness:
    """Performs scenarios, each time in a new session.

    Attributes:
        folder: for journals.
    """

    world: SeededTenant
    database: str
    forks: ForkServer
    folder: Path
    patch: pytest.MonkeyPatch

    async def set(self, scenario: Scenario) -> ScenarioRun:
        """Prepare a performance, and begin it: the runs are queued."""
        (scene,) = await self.prepare(scenario, 1)
        await self.begin(scene)
        return scene

    async def prepare(self, scenario: Scenario, count: int) -> list[ScenarioRun]:
        """Prepare that many performances; one earlier process dies in mid-tool of all, if any does."""
        if scenario.gated:
            agent = await Agents(self.world.pool).by_slug(self.world.tenant.id, "helper")
            gated = NewAgent("helper", "Helper", "scripted", "model-1", completion=GATE)
            await Agents(self.world.pool).update(
                self.world.tenant.id, agent.id, lambda _: gated, actor=None
            )
        scenes = [await self._scene(scenario) for _ in range(count)]
        if scenario.left is not None:
            await self._die_in(scenes)
        return scenes

    async def begin(self, scene: ScenarioRun) -> None:
        """Begin a performance; the tools of this process, too, write to its journal from now on."""
        self.patch.setenv("DURABLE_JOURNAL", str(scene.journal))
        await scene.begin()

    async def _scene(self, scenario: Scenario) -> ScenarioRun:
        session = await self.world.session()
        journal = self.folder / f"{session.id}.journal"
        scene = ScenarioRun(scenario, self.world, self.database, session, journal)
        if scenario.left is not None:
            await scene.queue_up()
        return scene

    async def _die_in(self, scenes: Sequence[ScenarioRun]) -> None:
        """Have a process die when all *scenes* are in `post`; the leases hold until they are lapsed."""
        journal = self.folder / f"{new_id()}.journal"
        session, crowd = scenes[0].session.id, len(scenes)
        first = ProcessPlan(self.database, session, str(journal), {"post": ProcessFault.DIE}, crowd)
        assert await self.forks.lived(first) == DIED
        await sql(
            self.world.pool,
            "update runs set lease_expires_at = now() + interval '1 day' where state = 'running'",
        )
        marks = journal.read_text("utf-8").splitlines()
        for scene in scenes:
            own = [mark for mark in marks if str(scene.runs[0].id) in mark]
            scene.journal.write_text("".join(f"{mark}\n" for mark in own), "utf-8")

    async def without_crash(self, scenario: Scenario) -> tuple[ScenarioRun, VisibleState]:
        """Perform *scenario* without a crash; a process that drains is followed by another."""
        scene = await self.set(scenario)
        assert await self.forks.lived(scene.life()) == 0
        if await scene.unfinished():
            await scene.recover()
        outcome = await scene.outcome()
        assert (outcome.ends, outcome.stored) == (scenario.ends, scenario.stored)
        return scene, outcome
