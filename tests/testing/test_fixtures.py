"""The fixtures are what users of hango test with."""

from __future__ import annotations

import os
import subprocess
import sys

import httpx
import pytest

import hango.testing
import hango.testing.plugin
from hango.domain import Role
from hango.testing import FakeProvider, databases, text
from hango.testing.plugin import SeededTenant, make_seeded_tenant, sql
from hango.web.app import WebSettings
from hango.web.models.requests import Registered


def test_the_public_names() -> None:
    """Adding or removing one is a decision."""
    assert sorted(hango.testing.__all__) == [
        "Answer",
        "FakeProvider",
        "MemoryLedger",
        "Script",
        "answer",
        "broken",
        "call",
        "check_request",
        "failing",
        "hanging",
        "text",
        "thinking",
        "waiting",
    ]
    assert hango.testing.plugin.__all__ == [
        "LeaseClock",
        "SeededTenant",
        "Worker",
        "World",
        "make_seeded_tenant",
        "sql",
    ]
    assert hango.testing.plugin.World is hango.testing.plugin.SeededTenant


@pytest.mark.parametrize(
    "module", ["hango.testing", "hango.testing.clock", "hango.testing.seeded_tenant"]
)
def test_only_the_plugin_needs_pytest(module: str) -> None:
    """Scripted models, clock and world can be had with any other runner of tests."""
    hide = "import sys; sys.modules.update(dict.fromkeys(['pytest', '_pytest', 'pytest_trio']))"
    done = subprocess.run([sys.executable, "-c", f"{hide}; import {module}"], check=False)
    assert done.returncode == 0


def test_scripted_models_come_without_what_the_clock_needs() -> None:
    """What only scripts a model, as a process of a load test does, starts no slower for the plug-in."""
    code = "import sys, hango.testing; sys.exit('trio.testing' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("_round", range(2))
async def test_each_test_has_a_database_of_its_own(hango_world: SeededTenant, _round: int) -> None:
    """The tenant of another test is not there, nor is anything else."""
    (counts,) = await sql(
        hango_world.pool,
        "select (select count(*) from tenants) as tenants, (select count(*) from runs) as runs",
    )
    assert (counts["tenants"], counts["runs"]) == (1, 0)


def test_a_server_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the variable is set, no server is started."""
    monkeypatch.setitem(os.environ, databases.SERVER_SETTING, "postgresql://there")
    with databases.postgres_server() as url:
        assert url == "postgresql://there"


async def test_a_world_for_each_tenant(hango_world: SeededTenant) -> None:
    """Two tenants in one database, with users of all roles each."""
    other = await make_seeded_tenant(hango_world.pool, "globex")
    assert set(other.users) == set(Role)
    assert other.tenant.id != hango_world.tenant.id


@pytest.fixture
def hango_web_settings() -> WebSettings:
    """Let the API know a tool of the test's own."""
    return WebSettings(Registered(providers={"fake"}, tools={"hammer"}))


async def test_the_client_is_the_owner_and_the_server_knows_what_it_is_told(
    hango_world: SeededTenant, hango_client: httpx.AsyncClient
) -> None:
    """Overriding one fixture is all it takes to make agents with tools of one's own."""
    me = await hango_client.get("/v1/me")
    assert me.json()["email"] == hango_world.users[Role.OWNER].email
    agent = {"slug": "smith", "name": "Smith", "provider": "fake", "model": "m", "tools": ["hammer"]}
    made = await hango_client.post("/v1/agents", json=agent)
    assert made.status_code == 201, made.text
    refused = await hango_client.post("/v1/agents", json=agent | {"slug": "s", "tools": ["saw"]})
    assert refused.status_code == 422


async def test_keys_of_all_roles(hango_world: SeededTenant, hango_client: httpx.AsyncClient) -> None:
    """A test acts as anybody of the tenant."""
    for role in Role:
        headers = {"Authorization": f"Bearer {await hango_world.key(role)}"}
        me = await hango_client.get("/v1/me", headers=headers)
        assert me.json()["role"] == role


async def test_in_real_time_the_doorbell_is_enough(hango_world: SeededTenant) -> None:
    """Without a lease_clock nothing is waited for but the work itself."""
    async with hango_world.worker(FakeProvider([text("done")])):
        done = await hango_world.ended(await hango_world.run(await hango_world.session()))
    assert done.claim_epoch == 1
