"""`/metrics` of real processes: every series that is promised, at 0 from the start, and bounded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from hango.domain import ErrorCode, RunState
from hango.telemetry import metrics, names
from hango.tools.failures import ErrorKind

from support.processes import Running, started

STORE = Path(__file__).parents[2] / "hango" / "store"
# a counter of Prometheus ends so; other names are those of the instrument
COUNTERS: Mapping[str, Mapping[str, AbstractSet[str]]] = {
    names.RUN_CLAIMS: {"outcome": {"won", "lost"}},
    names.RUN_RECLAIMED: {"outcome": set(RunState)},
    names.RUN_ENDED: {"state": set(RunState), "error_type": set(ErrorCode) | {""}},
    names.FENCE_REJECTED: {"write": set(metrics.FENCED_WRITES)},
    names.TOOL_ERRORS: {
        "gen_ai_tool_name": {"get_time", "http_fetch", "todowrite", names.UNKNOWN},
        "error_type": set(ErrorKind),
    },
    **{
        name: {"gen_ai_provider_name": {"demo", "openai"}}
        for name in (names.PROVIDER_RETRIES, names.INPUT_TOKENS, names.REASONING_TOKENS)
    },
}
GAUGES = [names.RUNS_BY_STATE, names.RUN_QUEUE_DEPTH, names.POOL_SIZE, names.POOL_IN_USE]
Samples = Mapping[str, list[tuple[Mapping[str, str], float]]]


async def scraped(url: str) -> Samples:
    """Return the samples that a process answers, by name."""
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.get(f"{url}/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    found: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    for family in text_string_to_metric_families(answer.text):
        assert family.name.startswith(("process_", "target_")) or family.documentation
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


async def url_of(process: Running, text: str) -> str:
    """Return the URL that a process says it listens on."""
    return (await process.line(text)).rpartition(" on ")[2].strip()


async def until_sampled(url: str, name: str) -> Samples:
    """Scrape until a series is there."""
    while name not in (found := await scraped(url)):
        pass
    return found


@pytest.mark.parametrize("role", ["worker", "web", "all"])
async def test_every_role_answers_every_metric(database: str, role: str) -> None:
    """At the health port, without a key; every counter is 0 before anything has happened."""
    settings = {"HANGO_DATABASE_URL": database, "HANGO_ROLE": role, "HANGO_BIND": "127.0.0.1:0"}
    async with started("serve", HANGO_HEALTH_BIND="127.0.0.1:0", **settings) as process:
        url = await url_of(process, "answering health checks")
        found = await until_sampled(url, _prometheus(names.RUNS_BY_STATE))
        for name, labels in COUNTERS.items():
            samples = found[_prometheus(name) + "_total"]
            assert all(value == 0 for _, value in samples), name
            for label, values in labels.items():
                assert {sample.get(label, "") for sample, _ in samples} >= values, name
        for gauge in GAUGES:
            assert _prometheus(gauge) in found
        assert found["process_resident_memory_bytes"]
        async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
            for path in ("/healthz", "/readyz"):
                assert (await client.get(path)).json() == {"status": "ok"}
            assert (await client.get("/v1/runs")).status_code == 404
        if role != "worker":
            api = await url_of(process, "listening on")
            async with httpx.AsyncClient(trust_env=False) as client:
                assert (await client.get(f"{api}/metrics")).status_code == 404


async def test_without_a_health_port_the_api_answers_the_metrics(database: str) -> None:
    """So that a process on its own needs no second port."""
    settings = {"HANGO_DATABASE_URL": database, "HANGO_BIND": "127.0.0.1:0"}
    async with started("serve", **settings) as process:
        url = await url_of(process, "listening on")
        assert await until_sampled(url, _prometheus(names.RUN_QUEUE_DEPTH))


def test_every_fenced_write_is_counted_from_the_start() -> None:
    """The names that the store counts rejected writes by are those that start at 0."""
    claims = (STORE / "claims.py").read_text("utf-8")
    written = re.findall(r'fence\.(?:write|store)\(\s*"(\w+)"', claims)
    recorded = re.findall(
        r'= QUERIES\["((?:begin|finish)_\w+)"\]', (STORE / "tool_ledger.py").read_text()
    )
    assert {*written, *recorded} == set(metrics.FENCED_WRITES)


def test_labels_are_bounded() -> None:
    """Beyond the bound all values are one."""
    bounded = metrics.Bounded(2)
    assert [bounded.of(value) for value in "abcba"] == ["a", "b", names.OTHER, "b", "a"]


def _prometheus(name: str) -> str:
    return name.replace(".", "_")
