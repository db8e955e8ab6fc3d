"""A server whose log nobody reads works as ever, and ends when it is told to."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess

import pytest
import trio

from hango.db.pool import open_pool
from hango.domain import RunState
from hango.testing.seeded_tenant import make_seeded_tenant

from support.processes import COMMAND, environment

PIPE = 4096  # bytes; the lines of a dozen runs
RUNS = 60


@pytest.mark.rule(27)
async def test_a_log_that_nobody_reads_stops_nothing(database: str) -> None:
    """N25: runs end, and SIGTERM drains, while writing to standard error would block."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE)
    settings = environment(HANGO_DATABASE_URL=database, HANGO_ROLE="worker")
    async with open_pool(database) as pool:
        world = await make_seeded_tenant(pool, provider="demo")
        process = await trio.lowlevel.open_process(
            [*COMMAND, "serve"], env=settings, stdout=subprocess.DEVNULL, stderr=writer
        )
        os.close(writer)
        try:
            with trio.fail_after(120):
                runs = [await world.run(await world.session(), "hello") for _ in range(RUNS)]
                assert {(await world.ended(run)).state for run in runs} == {RunState.SUCCEEDED}
                process.send_signal(signal.SIGTERM)
                assert await process.wait() == 0
        finally:
            process.kill()
            written = os.read(reader, 2 * PIPE)
            os.close(reader)
    assert len(written) > PIPE // 2  # it was full
