"""`hango chaos`: a short storm, and how it ends when it is not let alone."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import trio

from hango.chaos.__main__ import _report
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
_LONGEST = 240.0  # seconds; after the storm all runs are finished, however busy the machine


@pytest.fixture
def folder() -> Iterator[Path]:
    """Have a folder for everything, where the server's user may go; its servers are stopped."""
    with temporary_folder() as path:
        yield path


async def storm(folder: Path, *words: str) -> Finished:
    """Go through a storm in *folder*, told of a database that must not be touched."""
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


def what_is_in(folder: Path) -> list[Path]:
    """Return what was left."""
    return list(folder.iterdir())


@pytest.mark.rule(3)
@pytest.mark.rule(8)
@pytest.mark.rule(26)
async def test_nothing_is_lost_and_nothing_runs_twice_in_a_storm(folder: Path) -> None:
    """Killed, frozen and drained workers, a restarted Postgres, lost doorbells: no violation."""
    done = await storm(folder, "--seed", "1", "--seconds", "4", "--workers", "2")
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
    assert what_is_in(folder) == []


def test_what_was_violated_is_told_and_left_to_be_looked_at(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The number is on standard output, the words are on standard error, and the exit code is 1."""
    result = Result(9, 8, 7, 6, 5, 4, 3, ["run 1 was lost", "run 2 as well"])
    assert _report(result, tmp_path) == 1
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
async def test_whatever_ends_it_no_worker_is_left(folder: Path, number: signal.Signals) -> None:
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
            assert what_is_in(folder) == []
    _, alive = await trio.to_thread.run_sync(lambda: psutil.wait_procs(others, timeout=60))
    assert alive == []
