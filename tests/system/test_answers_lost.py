"""A run cut short while the answer to one of its writes is missing: it ends by what is stored."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from hango.db.pool import Pool
from hango.db.queries import Query, Row
from hango.domain import RunState
from hango.errors import StoreUnavailable
from hango.testing import FakeProvider, call, text
from hango.testing.plugin import SeededTenant, sql

from support.workers import BlockingTool, started_worker


class LostAnswer:
    """Lets the first write of a kind commit, loses its answer, and cuts the run short meanwhile."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, name: str, scope: trio.CancelScope, also: str
    ) -> None:
        write, self.lost = Pool.write, trio.Event()

        async def lose(pool: Pool, query: Query, **values: object) -> Sequence[Row]:
            rows = await write(pool, query, **values)  # type: ignore[arg-type]  # handed through
            if query.name == name and not self.lost.is_set():
                self.lost.set()
                await sql(pool, also)
                scope.cancel()
                raise StoreUnavailable("the answer was lost")
            return rows

        monkeypatch.setattr(Pool, "write", lose)


@pytest.mark.rule(11)
@pytest.mark.parametrize("write", ["append_messages", "end_turn"])
@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_run_cut_short_after_a_lost_answer_ends_at_once(
    world: SeededTenant, monkeypatch: pytest.MonkeyPatch, write: str, *, cancelled: bool
) -> None:
    """Torn down with its process, it does not wait for its lease to lapse: the next sweep decides."""
    gate, session = BlockingTool(), await world.session()
    gate.open.set()
    async with started_worker(world, FakeProvider([call("hold"), text("done")]), gate.tool) as worker:
        also = "update runs set cancel_requested_at = now()" if cancelled else "select 1"
        losing = LostAnswer(monkeypatch, write, worker.scope, also)
        run = await world.run(session)
        await worker.ended.wait()
    assert losing.lost.is_set()
    assert await world.queue().sweep() == 1
    left = await world.reload(run)
    assert left.state is (RunState.CANCELLED if cancelled else RunState.QUEUED)
    stored = await world.sessions.messages(world.scope(), session.id)
    assert [message.partial for message in stored] == [False] * len(stored)
    assert left.resume_turn == (1 if write == "end_turn" else 0)
