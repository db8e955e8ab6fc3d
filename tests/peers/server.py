"""Servers that others wrote, as processes of their own, for tests to talk to.

Its one rule: a server ends with the block that started it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import trio

# How each is started; {rules} is a JSON file, which is YAML too.  Port 0: the system chooses.
_COMMANDS = {
    "fakellm": ("fakellm", "serve", "--port", "0", "--config", "{rules}"),
    "stubllm": ("stubllm", "serve", "--port", "0", "--fixture-file", "{rules}"),
}
# What uvicorn, which both are served by, says when it listens
_LISTENING = re.compile(rb"running on (http://127\.0\.0\.1:\d+)")
_PATIENCE = 60.0  # seconds for a start, on a busy machine


@asynccontextmanager
async def peer(name: str, rules: Mapping[str, object], folder: Path) -> AsyncIterator[str]:
    """Run the server *name* by *rules*, which are written into *folder*; yields its base URL."""
    path = folder / f"{name}.json"
    path.write_text(json.dumps(rules))
    program, *arguments = (part.format(rules=path) for part in _COMMANDS[name])
    process = await trio.lowlevel.open_process(
        [f"{os.environ['HANGO_TEST_PEERS']}/{program}", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=folder,
    )
    assert process.stderr is not None
    try:
        async with process.stderr, trio.open_nursery() as nursery:
            url = await _listening(process.stderr)
            nursery.start_soon(_drain, process.stderr)
            yield url
            nursery.cancel_scope.cancel()
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


async def _listening(stderr: trio.abc.ReceiveStream) -> str:
    said = b""
    with trio.fail_after(_PATIENCE):
        while not (found := _LISTENING.search(said)):
            more = await stderr.receive_some()
            assert more, f"the server ended: {said.decode()}"
            said += more
    return found[1].decode()


async def _drain(stderr: trio.abc.ReceiveStream) -> None:
    """Read on, or the server stops at a full pipe."""
    async for _ in stderr:
        pass
