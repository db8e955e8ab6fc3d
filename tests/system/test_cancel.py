"""A cancel, over HTTP, at every moment of a run's life."""

from __future__ import annotations

from contextlib import AsyncExitStack

import attrs
import httpx
import pytest

from hango.domain import Role, Run, Session
from hango.testing import FakeProvider
from hango.testing.clock import settle

from support.api import Api
from support.journal_plugin import asked, said
from support.outcome_matrix import Phase, StopPoints
from support.workers import started_worker, until

pytestmark = pytest.mark.rule(11)


@attrs.frozen
class Moment:
    """When a run is cancelled, and what comes of it.

    Attributes:
        when: ``lapsed``: its owner is gone, and nobody has swept yet; ``over``: it has ended.
        statuses: of the cancel, of another one at once, and of one after the run's end.
        state: the run ends in.
        calls: of the provider.
        stored: turn and role of the run's messages; ``~`` for one that is partial.
        asked_for: whether the cancel is on record.
    """

    when: str
    statuses: tuple[int, int, int]
    state: str
    calls: int
    stored: str
    asked_for: bool = True

    def __str__(self) -> str:
        """Name it, for the list of tests."""
        return self.when


MOMENTS = (
    Moment("queued", (200, 200, 200), "cancelled", 0, ""),
    Moment("told", (202, 202, 200), "cancelled", 0, ""),
    Moment("streaming", (202, 202, 200), "cancelled", 1, "0u 1a~"),
    Moment("in tool", (202, 202, 200), "cancelled", 1, "0u 1a"),
    Moment("turn write", (202, 202, 200), "cancelled", 1, "0u 1a 1u"),
    Moment("final write", (202, 202, 200), "succeeded", 2, "0u 1a 1u 2a"),
    Moment("written", (200, 200, 200), "succeeded", 2, "0u 1a 1u 2a", asked_for=False),
    Moment("lapsed", (202, 202, 200), "cancelled", 0, ""),
    Moment("over", (200, 200, 200), "succeeded", 2, "0u 1a 1u 2a", asked_for=False),
)


@attrs.frozen
class Play:
    """A run that is cancelled."""

    api: Api
    moment: Moment
    session: Session
    stops: StopPoints
    provider: FakeProvider = attrs.field(factory=lambda: FakeProvider(lambda it: said(*asked(it))))

    async def post(self, client: httpx.AsyncClient, name: str) -> Run:
        """Ask for a run, whose prompt begins with that name."""
        path = f"/v1/sessions/{self.session.id}/runs"
        posted = (await client.post(path, json={"input": f"{name} look"})).json()
        (run,) = [it for it in await self._runs() if str(it.id) == posted["id"]]
        return run

    async def reach(self, run: Run, workers: AsyncExitStack) -> None:
        """Bring the run to the moment."""
        match self.moment.when:
            case "queued":
                pass
            case "lapsed":
                assert await self.api.worker().claim_next(self.session.id)
                await self.api.acme.lapse(run)
            case "over":
                await self.start(workers)
                await until(self.api.acme, [run])
            case _:
                await self.start(workers)
                await self.stops.all_stopped.wait()

    async def start(self, workers: AsyncExitStack) -> None:
        """Start to execute runs."""
        provider = self.stops.model(self.provider)
        await workers.enter_async_context(started_worker(self.api.acme, provider, self.stops.tool))

    async def stored(self, client: httpx.AsyncClient, run: Run) -> str:
        """Tell the run's messages."""
        found = (await client.get(f"/v1/sessions/{self.session.id}/messages")).json()["data"]
        return " ".join(
            f"{it['turn']}{it['role'][0]}{'~' * it['partial']}"
            for it in found
            if it["run_id"] == str(run.id)
        )

    async def _runs(self) -> list[Run]:
        return list(await self.api.acme.runs.list(self.api.acme.scope()))


@pytest.mark.parametrize("moment", MOMENTS, ids=str)
async def test_a_cancel_ends_what_is_not_over(
    api: Api, monkeypatch: pytest.MonkeyPatch, moment: Moment
) -> None:
    """D09: once or thrice is the same; the answer says if the run has ended; the session goes on."""
    phase = next((it for it in Phase if it == moment.when), Phase.QUEUED)
    play = Play(api, moment, await api.session(), StopPoints({phase}))
    play.stops.stand_in(monkeypatch)
    async with api.as_role(Role.MEMBER) as client, AsyncExitStack() as workers:
        run = await play.post(client, phase.name)
        await play.reach(run, workers)
        cancel = f"/v1/runs/{run.id}/cancel"
        first, again = [await client.post(cancel) for _ in range(2)]
        await settle([api.pool])  # it is heard of
        play.stops.go_on.set()
        if moment.when in {"queued", "lapsed"}:
            await play.start(workers)
        await until(api.acme, [run])
        calls, stored = play.provider.calls, await play.stored(client, run)
        last = await client.post(cancel)
        after = await until(api.acme, [await play.post(client, "after")])
    assert again.json() == first.json()
    assert (first.status_code, again.status_code, last.status_code) == moment.statuses
    assert (last.json()["state"], calls, stored) == (moment.state, moment.calls, moment.stored)
    assert [it.state for it in after] == ["succeeded"]
    assert await api.count("audit_events", "action = 'run.cancel'") == moment.asked_for
    assert play.provider.complaints == []
