"""Runs: asking for one, the cap, looking, cancelling, and what a drain refuses."""

from __future__ import annotations

import json
import re

import httpx
import pytest
import trio

from hango.domain import Role, Session
from hango.testing.plugin import sql

from support.api import Api, is_problem

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def ask(client: httpx.AsyncClient, session: Session, said: object = "hello") -> httpx.Response:
    """Ask for a run."""
    return await client.post(f"/v1/sessions/{session.id}/runs", json={"input": said})


async def test_a_run_is_accepted_and_found(api: Api) -> None:
    """A prompt is answered at once with 202, where the run is, and the run as it will be read."""
    session = await api.session()
    user = api.acme.users[Role.MEMBER]
    async with api.client(user) as client:
        accepted = await ask(client, session)
        read = await client.get(accepted.headers["location"])
        listed = await client.get(f"/v1/sessions/{session.id}/runs")
        whole = await client.get(f"/v1/sessions/{session.id}/runs?include=input")
        wrong = await client.get("/v1/runs?include=output")
    run = accepted.json()
    assert accepted.status_code == 202
    assert accepted.headers["location"] == f"/v1/runs/{run['id']}"
    assert read.json() == run
    assert whole.json() == {"data": [run], "next_cursor": None}
    without = {name: value for name, value in run.items() if name != "input"}
    assert listed.json() == {"data": [without], "next_cursor": None}  # W-L12
    assert is_problem(wrong, 422, "invalid", "include")
    assert re.fullmatch("[0-9a-f]{32}", run.pop("trace_id"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", run.pop("created_at"))
    assert run.pop("id")
    assert list(run) == [
        *("session_id", "agent_id", "created_by", "lane", "session_seq", "state", "input", "error"),
        *("stop_reason", "stopped_by", "attempts", "iterations", "resume_turn", "usage"),
        *("final_message_id", "span_id", "cancel_requested_at", "started_at", "finished_at"),
        "waiting_on",
    ]
    assert run["session_id"] == str(session.id)
    assert run["created_by"] == str(user.id)
    assert (run["lane"], run["session_seq"], run["state"]) == ("main", 1, "queued")
    assert run["input"] == [{"type": "text", "text": "hello"}]
    assert (run["attempts"], run["iterations"], run["resume_turn"]) == (1, 0, 0)
    assert set(run["usage"].values()) == {0}
    assert run["error"] is run["stop_reason"] is run["final_message_id"] is run["started_at"] is None


async def test_a_run_is_on_record_with_its_trace(api: Api) -> None:
    """The audit row of a run carries the run's trace id, its session and its agent."""
    session = await api.session()
    user = api.acme.users[Role.MEMBER]
    async with api.client(user) as client:
        run = (await ask(client, session)).json()
    (row,) = await sql(api.pool, "select * from audit_events where action = 'run.create'")
    assert row["trace_id"] == run["trace_id"]
    assert str(row["target_id"]) == run["id"]
    assert str(row["actor_id"]) == str(user.id)
    assert run["session_id"] in str(row["detail"])
    assert run["agent_id"] in str(row["detail"])


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        (TRACEPARENT, TRACEPARENT),
        (TRACEPARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32), None),
        ("junk", None),
        (None, None),
    ],
)
async def test_the_callers_trace_is_remembered(api: Api, sent: str | None, stored: str | None) -> None:
    """A sound trace context is kept, so that the run can link to it; another one is ignored."""
    session = await api.session()
    async with api.as_role(Role.MEMBER) as client:
        client.headers.update({"traceparent": sent} if sent else {})
        accepted = await ask(client, session)
    (row,) = await sql(api.pool, "select request_trace from runs")
    assert accepted.status_code == 202
    assert row["request_trace"] == stored


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "input"),
        ({"input": None}, "input"),
        ({"input": 5}, "input"),
        ({"input": {}}, "input"),
        ({"input": ""}, "input"),
        ({"input": " "}, "input"),
        ({"input": []}, "input"),
        ({"input": [{"type": "text", "text": ""}, {"type": "text", "text": "\n"}]}, "input"),
        ({"input": [None]}, "input.0"),
        ({"input": [{"type": "text", "text": "x"}, {"type": "text"}]}, "input.1.text"),
        ({"input": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]}, "input.0.type"),
        ({"input": [{"type": "thinking", "thinking": "x"}]}, "input.0.type"),
        ({"input": "x", "imput": "y"}, "imput"),
        ({"input": "x", "lane": "main"}, "lane"),
        ({"input": "x", "a\x00\ud800": 1}, "a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"),
    ],
)
async def test_a_wrong_prompt_is_refused_by_its_field(
    api: Api, body: dict[str, object], field: str
) -> None:
    """A prompt is text, or blocks of text, that says something (B08)."""
    session = await api.session()
    async with api.as_role(Role.MEMBER) as client:
        client.headers["Content-Type"] = "application/json"
        response = await client.post(f"/v1/sessions/{session.id}/runs", content=json.dumps(body))
    assert is_problem(response, 422, "invalid", field)
    assert await api.count("runs") == 0


async def test_the_cap_is_exact(api: Api) -> None:
    """Of forty prompts at once, as many are taken as the cap says, and the rest learn to come back."""
    session = await api.session()
    answers: list[httpx.Response] = []

    async def post() -> None:
        answers.append(await ask(client, session))

    async with api.as_role(Role.MEMBER) as client, trio.open_nursery() as nursery:
        for _ in range(40):
            nursery.start_soon(post)
    accepted = [response for response in answers if response.status_code == 202]
    refused = [response for response in answers if response.status_code != 202]
    assert (len(accepted), len(refused)) == (3, 37)
    for response in refused:
        assert is_problem(response, 429, "session_queue_full")
        assert int(response.headers["retry-after"]) >= 1
    assert sorted(response.json()["session_seq"] for response in accepted) == [1, 2, 3]
    assert await api.count("runs") == await api.count("audit_events", "action = 'run.create'") == 3
    assert api.pool.idle == api.pool.size


async def test_a_running_run_counts_and_an_ended_one_does_not(api: Api) -> None:
    """The cap counts queued and running runs; the place of one that ended is free at once."""
    session = await api.session()
    async with api.as_role(Role.MEMBER) as client:
        runs = [(await ask(client, session)).json() for _ in range(3)]
        assert await api.worker().claim_next(session.id)
        full = await ask(client, session)
        await client.post(f"/v1/runs/{runs[2]['id']}/cancel")
        free = await ask(client, session)
    assert is_problem(full, 429, "session_queue_full")
    assert free.json()["session_seq"] == 4


@pytest.mark.rule(11)
async def test_cancelling_a_queued_run_ends_it(api: Api) -> None:
    """A queued run is cancelled at once: 200; again, it is as it was."""
    session = await api.session()
    async with api.as_role(Role.MEMBER) as client:
        run = (await ask(client, session)).json()
        first = await client.post(f"/v1/runs/{run['id']}/cancel")
        second = await client.post(f"/v1/runs/{run['id']}/cancel")
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json() == second.json()
    assert first.json()["state"] == "cancelled"
    assert first.json()["finished_at"]
    assert first.json()["started_at"] is None


@pytest.mark.rule(11)
async def test_cancelling_a_running_run_asks_its_owner(api: Api) -> None:
    """A running run is asked to end: 202, once and again, from the first request on."""
    session = await api.session()
    async with api.as_role(Role.MEMBER) as client:
        run = (await ask(client, session)).json()
        assert await api.worker().claim_next(session.id)
        first = await client.post(f"/v1/runs/{run['id']}/cancel")
        second = await client.post(f"/v1/runs/{run['id']}/cancel")
    assert (first.status_code, second.status_code) == (202, 202)
    assert first.json()["state"] == "running"
    assert first.json()["cancel_requested_at"]
    assert second.json() == first.json()
    assert await api.count("audit_events", "action = 'run.cancel'") == 1


async def test_runs_are_listed_by_state_and_page(api: Api) -> None:
    """A list can be narrowed to a state and walked page by page, newest first."""
    session = await api.session()
    async with api.as_role(Role.MEMBER) as client:
        runs = [(await ask(client, session)).json()["id"] for _ in range(3)]
        await client.post(f"/v1/runs/{runs[1]}/cancel")
        first = (await client.get("/v1/runs?state=queued&limit=1")).json()
        rest = (await client.get(f"/v1/runs?state=queued&limit=1&cursor={first['next_cursor']}")).json()
        ended = (await client.get(f"/v1/sessions/{session.id}/runs?state=cancelled")).json()
        wrong = await client.get("/v1/runs?state=done")
    assert [row["id"] for row in first["data"] + rest["data"]] == [runs[2], runs[0]]
    assert rest["next_cursor"] is None
    assert [row["id"] for row in ended["data"]] == [runs[1]]
    assert is_problem(wrong, 422, "invalid", "state")


async def test_a_draining_server_takes_no_run_and_answers_the_rest(api: Api) -> None:
    """While draining new runs are refused for others to take; reading and cancelling go on (D16)."""
    session = await api.session()
    async with api.as_role(Role.MEMBER) as client:
        run = (await ask(client, session)).json()
        assert (await client.get("/readyz")).status_code == 200
        api.server.draining.set()
        refused = [await ask(client, session), await client.get("/readyz")]
        statuses = [
            (await client.get(f"/v1/runs/{run['id']}")).status_code,
            (await client.get("/healthz")).status_code,
            (await client.post(f"/v1/runs/{run['id']}/cancel")).status_code,
        ]
    for response in refused:
        assert is_problem(response, 503, "draining")
        assert int(response.headers["retry-after"]) >= 1
    assert statuses == [200, 200, 200]
    assert await api.count("runs") == 1
