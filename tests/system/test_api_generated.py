"""Thousands of requests made from the OpenAPI document, right and wrong ones, to a live server."""

from __future__ import annotations

import sys
from pathlib import Path

import trio

from hango.domain import Role
from hango.providers import DemoProvider
from hango.testing.plugin import sql
from hango.web.app import ROUTES

from support.api import Api
from support.workers import started_worker

# What a schema cannot say (which tools are registered, what a cursor holds, that a key is new) is
# refused although it fits: that check would say so each time.
_CHECKS = ("--checks", "all", "--exclude-checks", "positive_data_acceptance")
_BOUNDS = ("--max-examples", "15", "--generation-deterministic", "--continue-on-failure")
_LONGEST = 300.0  # seconds; about 20 on an idle machine

# Whoever asks for everything also asks to be disabled, demoted and shut out.  Here that changes
# nothing, or all that follows would be a 401.
_KEEP = "create function keep() returns trigger language plpgsql as 'begin return old; end'"
_KEPT = """
create trigger keep before update on {} for each row when (old.{} = '{}') execute function keep()
"""


async def test_every_answer_is_one_that_the_document_declares(api: Api, tmp_path: Path) -> None:
    """No request gets a 5xx, or an undeclared status, type, header or shape; wrong ones are refused.

    They are made by Schemathesis, from examples, from every bound of every schema, at random, and as
    sequences in which one answer's id is the next one's path; the same ones every time, but for ids.
    """
    owner = api.acme.users[Role.OWNER]
    await sql(api.pool, _KEEP)
    await sql(api.pool, _KEPT.format("users", "id", owner.id))
    await sql(api.pool, _KEPT.format("api_keys", "user_id", owner.id))
    demo = DemoProvider()
    async with started_worker(api.acme, {"demo": demo, "fake": demo}):
        report = await schemathesis(
            f"{api.url}/openapi.json",
            *(*_CHECKS, *_BOUNDS, "--header", f"Authorization: Bearer {api.keys[owner.id]}"),
            cwd=tmp_path,
        )
    # all but the document itself, which it has read
    assert f"Tested: {len(ROUTES) - 1}\n" in report, report
    async with api.client(owner) as client:
        assert (await client.get("/v1/me")).json()["role"] == "owner"
    for table in ("agents", "sessions", "messages", "runs", "users", "api_keys"):
        assert await api.count(table) > 0, table
    assert await api.count("audit_events", f"actor_id = '{owner.id}'") > 50


async def schemathesis(*arguments: str, cwd: Path) -> str:
    """Run it to its end; return what it says, which is an assertion if it found something."""
    command = [sys.executable, "-m", "schemathesis.cli", "run", "--no-color", *arguments]
    with trio.fail_after(_LONGEST):
        done = await trio.run_process(
            command, cwd=cwd, capture_stdout=True, capture_stderr=True, check=False
        )
    report = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, report
    return report
