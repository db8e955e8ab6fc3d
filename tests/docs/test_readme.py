"""The README's tour works when it is typed as it stands."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from support.processes import data_folder, started

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Have a data folder whose server runs already."""
    with data_folder() as (path, _):
        yield path


async def test_the_tour_with_curl(folder: Path) -> None:
    """A session, a run, its messages, and a cancel that comes too late."""
    blocks = re.findall(r"```sh\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    tour = next(block for block in blocks if "api()" in block)
    async with started("dev", "--bind", "127.0.0.1:0", HANGO_DATA_DIR=str(folder)) as server:
        key = (await server.line("key ")).removeprefix("key ")
        asked = await server.line("curl ")
        url = asked.split()[-1].split("/v1/")[0]
        done = await trio.run_process(
            ["sh", "-euc", tour],
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "URL": url, "KEY": key},
            capture_stdout=True,
        )
    messages, end = json.JSONDecoder().raw_decode(done.stdout.decode())
    run = json.loads(done.stdout.decode()[end:])
    assert [message["role"] for message in messages["data"]] == ["user", "assistant"] * 2
    assert (run["state"], run["iterations"]) == ("succeeded", 2)
