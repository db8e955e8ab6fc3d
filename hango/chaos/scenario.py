"""The chaos run itself: a load, blows upon those who carry it, peace, and the accounts.

One rule: nesting order is shutdown order; whatever happens, no process of ours is left.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
import trio

from hango.chaos import checks as verdict
from hango.chaos.faults import Blow, Kind, draw_blows
from hango.chaos.journal import Journal
from hango.chaos.load import Load
from hango.chaos.server import Server, cut_listeners
from hango.chaos.workers import LEASE, Fleet
from hango.db.migrations import migrate
from hango.db.pool import Pool, open_pool
from hango.errors import StoreUnavailable
from hango.store import invariants

_LONGEST_PEACE = 180.0  # seconds; a run that was unlucky often waits a minute before it is taken up
_LOOK_EVERY = 0.25  # seconds
_TELL_EVERY = 5.0  # seconds


@attrs.frozen
class Options:
    """What is asked for.

    Attributes:
        seconds: how long to disturb.
        workers: how many processes.
    """

    seed: int
    seconds: float
    workers: int


@attrs.frozen
class Result:
    """What came of it, in numbers, and every violation in words."""

    runs: int
    kills: int
    pauses: int
    restarts: int
    reclaims: int
    redriven_turns: int
    rejected_writes: int
    violations: Sequence[str]


async def weather(
    options: Options, folder: Path, server: Server, tell: Callable[[str], None]
) -> Result:
    """Go through a storm, and return the accounts.

    Args:
        options: which storm.
        folder: for the journal and the logs of the workers.
        server: a Postgres of nobody else's, empty.
        tell: is told of the progress, a line at a time.
    """
    await migrate(server.dsn)
    journal = Journal(folder / "journal")
    fleet = Fleet.of(options.workers, folder, server.dsn, journal.path)
    async with open_pool(server.dsn) as pool, trio.open_nursery() as nursery:
        storm = Storm(pool, fleet, await Load.prepare(pool, options.seed), server, tell)
        nursery.start_soon(fleet.run)
        await fleet.ready()
        tell(f"{options.workers} workers are at work")
        await storm.rage(draw_blows(options.seed, options.seconds, LEASE), options.seconds)
        await storm.calm()
        complaints = await fleet.close()
        result = await storm.account(journal, complaints)
        nursery.cancel_scope.cancel()
    return result


@attrs.define(eq=False)
class Storm:
    """Who hits whom.

    Attributes:
        hits: how many blows of each kind have been dealt.
    """

    pool: Pool
    fleet: Fleet
    load: Load
    server: Server
    tell: Callable[[str], None]
    hits: Counter[Kind] = attrs.field(factory=Counter)

    async def rage(self, blows: Sequence[Blow], seconds: float) -> None:
        """Put on the load, and deal *blows*; return when *seconds* are over and the last has ended."""
        begin = trio.current_time()
        async with trio.open_nursery() as clients:
            clients.start_soon(self.load.run)
            clients.start_soon(self._tell_progress)
            async with trio.open_nursery() as nursery:
                for blow in blows:
                    await trio.sleep_until(begin + blow.at)
                    nursery.start_soon(self._deal, blow, clients)
                await trio.sleep_until(begin + seconds)
            clients.cancel_scope.cancel()

    async def _deal(self, blow: Blow, clients: trio.Nursery) -> None:
        match blow.kind:
            case Kind.KILL:
                await self.fleet.kill(blow.pick)
            case Kind.PAUSE:
                await self.fleet.pause(blow.pick, blow.lasts)
            case Kind.DRAIN:
                await self.fleet.drain(blow.pick)
            case Kind.RESTART:
                await self.server.restart(blow.lasts, harshly=bool(blow.pick % 2))
            case Kind.DEAFEN:
                await self._deafen(blow, clients)
        self.hits[blow.kind] += 1

    async def _deafen(self, blow: Blow, clients: trio.Nursery) -> None:
        try:
            await cut_listeners(self.pool)
        except StoreUnavailable:
            return  # it is being restarted, and nobody hears anything anyway
        await self.load.ask(clients, blow.pick)

    async def _tell_progress(self) -> None:
        begin = trio.current_time()
        while True:
            await trio.sleep(_TELL_EVERY)
            hits = ", ".join(f"{count} {kind}" for kind, count in sorted(self.hits.items()))
            self.tell(f"{trio.current_time() - begin:.0f} s: {len(self.load.scripts)} runs; {hits}")

    async def calm(self) -> None:
        """Leave everybody alone until all runs have ended; but not for ever."""
        with trio.move_on_after(_LONGEST_PEACE):
            told = -math.inf
            while live := await self.load.live():
                if trio.current_time() > told + _TELL_EVERY:
                    self.tell(f"no more faults: {live} runs have not ended")
                    told = trio.current_time()
                await trio.sleep(_LOOK_EVERY)

    async def account(self, journal: Journal, complaints: Sequence[str]) -> Result:
        """Check database and journal."""
        entries, runs = journal.read(), await self.load.runs()
        accounts = verdict.open_accounts(runs, await self.load.messages(), entries)
        broken = [
            f"{v.check}: session {v.session_id} run {v.run_id}: {v.what}"
            for v in await invariants.check(self.pool)
        ]
        return Result(
            runs=len(runs),
            kills=self.hits[Kind.KILL],
            pauses=self.hits[Kind.PAUSE],
            restarts=self.hits[Kind.RESTART],
            reclaims=verdict.reclaims(entries),
            redriven_turns=sum(account.redriven for account in accounts),
            rejected_writes=verdict.rejected_writes(entries),
            violations=[*broken, *verdict.judge(accounts), *complaints],
        )
