"""A durable run, from the command line to Postgres, whose model is a server that others wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from peers.server import peer

from support.processes import data_folder, hango

ASKED = "What time is it in Tokyo?"
ANSWER = "It is late in Tokyo (東京)."
RULES = {
    "rules": [
        {
            "name": "answer",
            "when": {"tool_result_contains": "(Asia/Tokyo, ", "tools_include": "get_time"},
            "respond": {"content": ANSWER},
        },
        {
            "name": "ask",
            "when": {"messages_contain": ASKED, "tools_include": "get_time"},
            "respond": {"tool_calls": [{"name": "get_time", "arguments": {"timezone": "Asia/Tokyo"}}]},
        },
    ]
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Have a data folder, not made inside trio: starting a server blocks."""
    with data_folder() as (made, _):
        yield made


@pytest.mark.rule(15)
async def test_a_durable_run_with_a_tool_call_succeeds(folder: Path, tmp_path: Path) -> None:
    """The model asks for the time, gets it, and answers; two turns are in the database."""
    async with peer("fakellm", RULES, tmp_path) as url:
        done = await hango("run", ASKED, "--json", HANGO_DATA_DIR=str(folder), OPENAI_BASE_URL=url)
    assert done.code == 0, done.err
    run = json.loads(done.out)
    assert (run["state"], run["iterations"], run["resume_turn"]) == ("succeeded", 2, 2)
    assert run["text"] == ANSWER
