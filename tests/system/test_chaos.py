"""`hango chaos`: a short scenario, and how it ends when a signal ends it."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import trio

from hango.chaos.__main__ import _print_result
from hango.chaos.scenario import Result

from support.embedded import temporary_folder
from support.processes import COMMAND, Finished, environment, hango, started

NAMES = (
    "runs",
    "kills",
    "pauses",
    "restarts",
    "reclaims",
    "redriven_turns",
    "rejected_writes",
    "violations",
)
_LONGEST = 240.0  # seconds; after the faults all runs are finished, however busy the machine


@pytest.fixture
def folder() -> Iterator[Path]:
    """Have a folder for everything, where the server's user may go; its servers are stopped."""
    with temporary_folder() as path:
        yield path


async def run_chaos(folder: Path, *words: str) -> Finished:
    """Run it in *folder*; the settings name a database that must not be touched."""
    settings = {
        "TMPDIR": str(folder),
        "HANGO_DATABASE_URL": "postgresql://nobody@localhost:1/nothing",
        "HANGO_DATA_DIR": str(folder / "untouched"),
    }
    with trio.fail_after(_LONGEST):
        done = await trio.run_process(
            [*COMMAND, "chaos", *words],
            env=environment(**settings),
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
    return Finished(done.returncode, done.stdout.decode(), done.stderr.decode())


def files_of(folder: Path) -> list[Path]:
    """Return what was left."""
    return list(folder.iterdir())


@pytest.mark.rule(3)
@pytest.mark.rule(8)
@pytest.mark.rule(26)
async def test_nothing_is_lost_and_nothing_runs_twice_under_faults(folder: Path) -> None:
    """Killed, frozen, drained workers, a Postgres away or full, a bad tenant: no violation."""
    done = await run_chaos(folder, "--seed", "1", "--seconds", "4", "--workers", "2")
    assert done.code == 0, done.err
    lines = [line.split(" ") for line in done.out.splitlines()]
    assert [name for name, _ in lines] == list(NAMES)
    numbers = {name: int(value) for name, value in lines}
    assert numbers["violations"] == 0
    assert numbers["kills"] >= 4
    assert numbers["runs"] >= 12
    assert numbers["pauses"] >= 1
    assert numbers["restarts"] >= 1
    assert numbers["reclaims"] >= 1
    assert files_of(folder) == []


def test_violations_are_printed_and_the_folder_is_kept(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The number is on standard output, the words are on standard error, and the exit code is 1."""
    result = Result(9, 8, 7, 6, 5, 4, 3, ["run 1 was lost", "run 2 as well"])
    assert _print_result(result, tmp_path) == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        f"{name} {value}" for name, value in zip(NAMES, (9, 8, 7, 6, 5, 4, 3, 2), strict=True)
    ]
    assert re.findall("violation: (.*)", err) == ["run 1 was lost", "run 2 as well"]
    assert str(tmp_path) in err


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (["--seconds", "5"], {}),
        (["--seed", "1", "--seconds", "0"], {}),
        (["--seed", "1", "--seconds", "5"], {"HANGO_BIND": "nowhere"}),
    ],
)
async def test_wrong_usage_is_2(words: list[str], settings: dict[str, str]) -> None:
    """Nothing is started."""
    done = await hango("chaos", *words, **settings)
    assert done.code == 2
    assert not done.out
    assert "Traceback" not in done.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_no_worker_outlives_it(folder: Path, number: signal.Signals) -> None:
    """Told to end, it cleans up; killed, at least the workers end with it."""
    words = ("chaos", "--seed", "1", "--seconds", "60", "--workers", "2")
    async with started(*words, TMPDIR=str(folder)) as process:
        await process.line("workers are at work")
        others = psutil.Process(process.process.pid).children(recursive=True)
        assert len(others) > 1
        process.signal(number)
        code = await process.ended()
        if number is not signal.SIGKILL:
            assert code == 128 + signal.SIGINT
            assert files_of(folder) == []
    _, alive = await trio.to_thread.run_sync(lambda: psutil.wait_procs(others, timeout=60))
    assert alive == []
