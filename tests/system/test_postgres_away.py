"""A Postgres that is away, in every way: a process stays up, and goes on by itself afterwards."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal
from uuid import UUID

import attrs
import httpx
import pytest
import trio

from hango.db.pool import Pool, open_pool
from hango.domain import Run, RunState
from hango.store.invariants import check
from hango.testing.databases import template_database, temporary_database
from hango.testing.plugin import SeededTenant, make_seeded_tenant
from hango.testing.workers import own_pool

from support import outages
from support.outages import Outage
from support.private_postgres import PrivatePostgres, private_postgres
from support.processes import Running, started
from support.workers import until

# Where the runs are when it begins, by their prompts; see `support.outage_plugin`.
MEANWHILE = (
    "during pay",  # the model talks, and asks for a tool meanwhile
    "pays pay",  # a tool is at work, and done meanwhile
    "during_last",  # the model talks, and has said all meanwhile
)
AFTERWARDS = (
    "after pay",  # the model talks until it is over
    "sends send",  # a tool that must not run again is at work until it is over
)
BEGUN = {"provider during 1", "provider during_last 1", "provider after 1", "pay", "send"}
ALL = BEGUN | {
    *("provider during 2", "provider pays 1", "provider pays 2", "provider after 2"),
    *("provider sends 1", "provider sends 2", "provider behind 1", "provider newcomer 1"),
}
_PATIENCE = 20.0  # seconds
_PAUSE = 0.02  # seconds between two looks at another process
_MOST_LINES = 1000  # of the log; a process that spins writes more in no time


@attrs.frozen
class Row:
    """A way to be away.

    Attributes:
        lease: seconds.
        lasts: seconds, at least.
        kept: whether the process keeps its leases: then nothing at all is done twice.
        ready: whether it says so meanwhile: not; or again, since it helps itself; or always.
    """

    outage: Outage
    lease: float
    lasts: float
    kept: bool
    ready: Literal["no", "again", "always"] = "no"


TABLE = {
    "stopped for a second": Row(outages.stopped, lease=15, lasts=1, kept=True),
    "stopped for longer than the lease": Row(outages.stopped, lease=2, lasts=2.3, kept=False),
    "crashed before commits": Row(outages.crashed_before_commits, lease=15, lasts=0, kept=True),
    "crashed after commits": Row(outages.crashed_after_commits, lease=15, lasts=0, kept=True),
    "full for a second": Row(outages.full, lease=15, lasts=1, kept=True),
    "all connections busy for two leases": Row(outages.busy, lease=2, lasts=4, kept=True),
    "frozen for a moment": Row(outages.frozen, lease=15, lasts=0, kept=True),
    "frozen for longer than the lease": Row(outages.frozen, lease=2, lasts=2.3, kept=False),
    "all cut off, and nobody let in": Row(outages.closed, lease=15, lasts=0, kept=True),
    "connections for heartbeats and doorbell hung": Row(
        outages.lines_hung, lease=3, lasts=3.5, kept=True, ready="always"
    ),
    "all connections for work hung": Row(
        outages.pool_hung, lease=3, lasts=3.5, kept=True, ready="again"
    ),
}


@pytest.fixture(scope="module")
def server() -> Iterator[PrivatePostgres]:
    """Have a server that may be done anything to."""
    with private_postgres() as running:
        yield running


@pytest.fixture(scope="module")
def template(server: PrivatePostgres) -> Iterator[str]:
    """Have a migrated database in it."""
    with template_database(server.dsn) as name:
        yield name


@pytest.fixture
def database(server: PrivatePostgres, template: str) -> Iterator[str]:
    """Have a database of the test's own in it."""
    with temporary_database(server.dsn, template) as url:
        yield url


@attrs.frozen
class Stage:
    """A process, what it executes, and the journal of what happened in it."""

    server: PrivatePostgres
    world: SeededTenant
    process: Running
    client: httpx.AsyncClient
    journal: Path
    runs: list[Run] = attrs.field(factory=list)

    @property
    def pool(self) -> Pool:
        """The test's own connections."""
        return self.world.pool

    @property
    def session(self) -> UUID:
        """A session."""
        return self.runs[0].session_id

    async def begin(self) -> None:
        """Have a run wherever one can be, and one more that waits in line."""
        for prompt in (*MEANWHILE, *AFTERWARDS):
            session = await self.world.session()
            self.runs.append(await self.world.run(session, prompt))
        self.runs.append(await self.world.run(session, "behind"))
        with trio.fail_after(_PATIENCE):
            while not self.marks().keys() >= BEGUN:  # noqa: ASYNC110 - another process makes them
                await trio.sleep(_PAUSE)

    async def ask(self) -> Run:
        """Have one more run, as any client can."""
        session = await self._post("/v1/sessions", {"agent_id": str(self.world.agent.id)})
        asked = await self._post(f"/v1/sessions/{session}/runs", {"input": "newcomer"})
        self.runs.append(await self.world.runs.get(self.world.scope(), asked))
        return self.runs[-1]

    async def _post(self, path: str, body: dict[str, str]) -> UUID:
        """Make something; return its id."""
        made = await self.client.post(path, json=body)
        assert made.is_success, made.text
        return UUID(made.json()["id"])

    def go_on(self) -> None:
        """Let the runs go on that do so during it."""
        self.journal.with_suffix(".during").touch()

    def finish(self) -> None:
        """Let the others go on, too."""
        self.journal.with_suffix(".after").touch()

    def marks(self) -> Counter[str]:
        """Count what happened: calls of the model by prompt and turn, and bodies of tools by name."""
        return Counter(line.partition(" ")[0] if ":" in line else line for line in self.lines())

    def lines(self) -> list[str]:
        """Read what happened."""
        return self.journal.read_text().splitlines() if self.journal.exists() else []

    async def ready(self) -> int:
        """Ask the process whether it is ready; return the status of its answer."""
        return (await self.client.get("/readyz")).status_code

    async def until_ready(self, status: int) -> None:
        """Wait until it answers that with *status*."""
        with trio.fail_after(_PATIENCE):
            while await self.ready() != status:  # noqa: ASYNC110 - another process gets so
                await trio.sleep(_PAUSE)


@asynccontextmanager
async def staged(
    server: PrivatePostgres, database: str, journal: Path, lease: float
) -> AsyncIterator[Stage]:
    """Have a process on *database*, at work."""
    settings = {
        "HANGO_DATABASE_URL": database,
        "HANGO_DB_POOL_SIZE": "3",
        "HANGO_PLUGINS": "support.outage_plugin",
        "HANGO_RUN_LEASE_TTL": f"{lease}s",
        "HANGO_RUN_HEARTBEAT_INTERVAL": "300ms",
        "HANGO_RUN_RECLAIM_INTERVAL": "500ms",
        "HANGO_RUN_POLL_INTERVAL": "500ms",
        "DURABLE_JOURNAL": str(journal),
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }
    async with open_pool(database) as unnamed, own_pool(unnamed) as pool:
        world = await make_seeded_tenant(pool, provider="patient")
        headers = {"Authorization": f"Bearer {await world.key()}"}
        async with started("serve", "--bind", "127.0.0.1:0", **settings) as process:
            url = (await process.line("listening on")).split("listening on ")[1]
            await process.line("executing runs")
            async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False) as client:
                stage = Stage(server, world, process, client, journal)
                await stage.begin()
                yield stage


@pytest.mark.rule(4)
@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE.keys())
async def test_a_process_goes_on_by_itself(
    server: PrivatePostgres, database: str, tmp_path: Path, row: Row
) -> None:
    """D10-D12: it lives, says whether it is ready, and fails no run; nothing stored is done again."""
    async with staged(server, database, tmp_path / "journal", row.lease) as stage:
        async with row.outage(stage):
            await suffer(stage, row)
            assert (await stage.client.get("/healthz")).status_code == 200
        await stage.until_ready(200)
        if row.ready != "always":
            await stage.ask()
        stage.finish()
        done = await until(stage.world, stage.runs)
        stage.process.signal(signal.SIGTERM)
        assert await stage.process.ended() == 0
        assert await check(stage.pool) == []
    assert {(run.state, run.error) for run in done} == {(RunState.SUCCEEDED, None)}
    assert {run.claim_epoch == 1 for run in done[: len(MEANWHILE + AFTERWARDS)]} == {row.kept}
    assert stage.marks().keys() == ALL
    assert max(Counter(stage.lines()).values()) <= max(run.claim_epoch for run in done)
    assert stage.marks()["send"] == 1
    log = stage.process.lines
    assert not any("Traceback" in line or " ERROR " in line for line in log), "\n".join(log)
    assert len(log) < _MOST_LINES


async def suffer(stage: Stage, row: Row) -> None:
    """Be there for as long as the row says, and see what the process says of itself."""
    end = trio.current_time() + row.lasts
    if row.ready != "always":
        await stage.until_ready(503)
    if row.ready == "no":
        while trio.current_time() < end:
            assert await stage.ready() == 503
            await trio.sleep(_PAUSE)
        return
    await stage.until_ready(200)
    due = stage.runs[: len(MEANWHILE)]
    if row.ready == "always":
        due.append(await stage.ask())
    await until(stage.world, due)
    await trio.sleep_until(end)
