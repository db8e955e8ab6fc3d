"""What is done with processes that end at a commit: runs that are worth crashing, and what is left.

Its one rule: two outcomes are compared by all that a user could see; only ids, times and owners differ.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path

import attrs
import pytest

from hango.domain import Effects, Run, Session
from hango.store.rows import Row

from support.forks import Forks
from support.lives import Cut, Life
from support.mortal import BEATING, DIED, TOOLS, Body, Fate
from support.shop import TOLD
from support.workers import until, working
from support.world import World, sql


class Left(StrEnum):
    """How an earlier process leaves the first run, in mid-tool."""

    RESUMED = "resumed"
    CANCELLED = "cancelled"
    CRASH_LOOP = "crash_loop"


@attrs.frozen
class Scenario:
    """What a process is to execute, in one session.

    Attributes:
        prompts: of the runs, in their order; the first words are ``one`` and ``two``.
        fates: of the process, as `Body` has them.
        left: None when no process was there before.
    """

    name: str
    prompts: tuple[str, ...]
    fates: Mapping[str, Fate] = attrs.field(factory=dict)
    left: Left | None = None


_TWO = ("one look post", "two look")  # the first run's process died in `post`
SCENARIOS = (
    Scenario("parallel tools", ("one look+tidy+pay+look tidy",)),
    Scenario("an unsafe tool", ("one post+look post",)),
    Scenario("a cancel in mid-tool", ("one tidy look+quit",), {"quit": Fate.CANCEL}),
    Scenario("a drain in mid-tool", ("one leave+pay look",), {"leave": Fate.DRAIN}),
    *(Scenario(f"after a run that is {left}", _TWO, left=left) for left in Left),
)

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
class Outcome:
    """All that a user could see of a session, but ids and times."""

    messages: Sequence[Mapping[str, object]]
    runs: Sequence[Mapping[str, object]]
    counters: Sequence[Mapping[str, object]]


@attrs.frozen
class Crashed:
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
class Scene:
    """One performance of a scenario.

    Attributes:
        journal: of its processes, one after the other.
    """

    scenario: Scenario
    world: World
    database: str
    session: Session
    runs: Sequence[Run]
    journal: Path

    def life(self, cut: Cut | None = None) -> Life:
        """Return the life of the process that the scenario is about."""
        fates = dict(self.scenario.fates)
        return Life(self.database, self.session.id, str(self.journal), fates, cut)

    def marks(self) -> list[str]:
        """Read the journal, oldest first."""
        return self.journal.read_text("utf-8").splitlines() if self.journal.exists() else []

    async def prepare(self, forks: Forks) -> None:
        """Let an earlier process die in mid-tool, if the scenario has one, and its lease lapse."""
        if self.scenario.left is None:
            return
        first = Life(self.database, self.session.id, str(self.journal), {"post": Fate.DIE})
        assert await forks.lived(first) == DIED
        self.journal.with_suffix(".commits").unlink()
        await self.lapse()
        if self.scenario.left is Left.CANCELLED:
            await self.world.runs.cancel(self.world.scope(), self.runs[0].id)
        if self.scenario.left is Left.CRASH_LOOP:
            await self._sql("update runs set reclaims = 9 where session_id = $1 and state = 'running'")

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
        body = Body(self.world.pool, dict(one for one in fates if one[1] is Fate.CANCEL))
        provider = body.provider
        async with working(self.world, {"scripted": provider}, *body.tools, settings=BEATING):
            await until(self.world, self.runs)
        assert provider.complaints == []

    async def unfinished(self) -> bool:
        """Tell whether a run of the session has not ended."""
        live = "select from runs where session_id = $1 and finished_at is null"
        return bool(await self._sql(live))

    async def outcome(self) -> Outcome:
        """Read what a user could see."""
        messages = [_parsed(row) for row in await self._sql(_MESSAGES)]
        runs = [_parsed(row) for row in await self._sql(_RUNS)]
        return Outcome(messages, runs, [dict(row) for row in await self._sql(_SEQ)])

    async def crashed(self) -> Crashed:
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
        return Crashed(frozenset(done), frozenset(unknown), len(marks))

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


def told_unknown(outcome: Outcome, unknown: frozenset[tuple[int, int, int]]) -> Outcome:
    """Return *outcome* as it is when nobody knows what became of the calls *unknown*."""

    def told(message: Mapping[str, object]) -> Mapping[str, object]:
        content = message["content"]
        assert isinstance(content, list)
        if message["role"] != "user":
            return message
        blocks = [
            block | {"content": f"post {TOLD}", "is_error": True}
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
class Stage:
    """Performs scenarios, each time in a new session.

    Attributes:
        folder: for journals.
    """

    world: World
    database: str
    forks: Forks
    folder: Path
    patch: pytest.MonkeyPatch
    performances: int = 0

    async def set(self, scenario: Scenario) -> Scene:
        """Begin a performance: the runs are queued, and an earlier process may have died."""
        self.performances += 1
        session = await self.world.session()
        runs = [await self.world.run(session, prompt) for prompt in scenario.prompts]
        journal = self.folder / f"{self.performances}.journal"
        self.patch.setenv("DURABLE_JOURNAL", str(journal))
        scene = Scene(scenario, self.world, self.database, session, runs, journal)
        await scene.prepare(self.forks)
        return scene

    async def without_crash(self, scenario: Scenario) -> tuple[Scene, Outcome]:
        """Perform *scenario* without a crash; a process that drains is followed by another."""
        scene = await self.set(scenario)
        assert await self.forks.lived(scene.life()) == 0
        if await scene.unfinished():
            await scene.recover()
        return scene, await scene.outcome()
