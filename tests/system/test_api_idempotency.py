"""`Idempotency-Key`: a request for a run can be sent again, and makes one run."""

from __future__ import annotations

import attrs
import httpx
import pytest
import trio

from hango.db.pool import open_pool
from hango.domain import Role, Session, new_id
from hango.testing.plugin import SeededTenant

from support.api import Api, is_problem, running
from support.locks import row_held, until_waiting

CUT_WHO_WAITS = """
select pg_terminate_backend(pid) from pg_stat_activity
 where datname = current_database() and wait_event_type = 'Lock'
"""
KEY = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"


async def ask(
    client: httpx.AsyncClient, session: Session, key: str | None, said: object = "hello"
) -> httpx.Response:
    """Ask for a run by the name of *key*."""
    headers = {} if key is None else {KEY: key}
    return await client.post(f"/v1/sessions/{session.id}/runs", json={"input": said}, headers=headers)


async def test_the_same_key_is_the_same_run(api: Api) -> None:
    """The second request is answered with the first one's run, as it is by then."""
    session = await api.session()
    async with api.as_role(Role.MEMBER) as client:
        first = await ask(client, session, "k1")
        await client.post(f"/v1/runs/{first.json()['id']}/cancel")
        second = await ask(client, session, "k1")
        other = await ask(client, session, "k2")
    assert (first.status_code, second.status_code, other.status_code) == (202, 202, 202)
    assert REPLAYED not in first.headers
    assert second.headers[REPLAYED] == "true"
    assert second.headers["location"] == first.headers["location"] != other.headers["location"]
    assert (first.json()["state"], second.json()["state"]) == ("queued", "cancelled")
    assert await api.count("runs") == await api.count("audit_events", "action = 'run.create'") == 2


async def test_without_a_key_each_request_is_a_run(api: Api) -> None:
    """Who names no key gets a run each time."""
    session = await api.session()
    async with api.as_role(Role.MEMBER) as client:
        answers = [await ask(client, session, None) for _ in range(2)]
    assert len({response.headers["location"] for response in answers}) == 2
    assert not any(REPLAYED in response.headers for response in answers)


async def test_fifty_at_once_make_one_run(api: Api, database: str) -> None:
    """Fifty requests with one key, at two servers, make one run, and all learn of it (D15)."""
    session = await api.session()
    answers: list[httpx.Response] = []

    async def post(client: httpx.AsyncClient) -> None:
        answers.append(await ask(client, session, "k"))

    async with (
        open_pool(database) as theirs,
        running(theirs) as other,
        api.as_role(Role.MEMBER) as client,
        attrs.evolve(api, server=other).as_role(Role.MEMBER) as elsewhere,
        trio.open_nursery() as nursery,
        open_pool(database, size=1) as onlooker,
        row_held(api.pool, "sessions", session.id),
    ):
        for number in range(50):
            nursery.start_soon(post, elsewhere if number % 2 else client)
        # of each pool, two connections are kept for executors
        await until_waiting(onlooker, api.pool.size + theirs.size - 4)
    assert [response.status_code for response in answers] == [202] * 50
    assert len({response.json()["id"] for response in answers}) == 1
    assert len({response.headers["location"] for response in answers}) == 1
    assert sum(REPLAYED not in response.headers for response in answers) == 1
    assert await api.count("runs") == await api.count("audit_events", "action = 'run.create'") == 1


@pytest.mark.parametrize("said", ["bye", [{"type": "text", "text": "hello "}]])
async def test_another_body_is_refused(api: Api, said: object) -> None:
    """A key that comes with another body is a mistake, told by its own code; nothing happens (D15)."""
    session = await api.session()
    async with api.as_role(Role.MEMBER) as client:
        await ask(client, session, "k")
        refused = await ask(client, session, "k", said)
    assert is_problem(refused, 422, "idempotency_key_reused", KEY)
    assert await api.count("runs") == await api.count("audit_events", "action = 'run.create'") == 1


async def test_the_same_body_in_other_words_is_the_same(api: Api) -> None:
    """A text and a block of that text, however spelled as JSON, are one body."""
    session = await api.session()
    async with api.as_role(Role.MEMBER) as client:
        first = await ask(client, session, "k", "h\N{LATIN SMALL LETTER E WITH ACUTE}")
        client.headers["Content-Type"] = "application/json"
        second = await client.post(
            f"/v1/sessions/{session.id}/runs",
            content=b'{ "input" : [ {"text": "h\\u00e9", "type": "text"} ] }',
            headers={KEY: "k"},
        )
    assert second.headers[REPLAYED] == "true"
    assert second.json() == first.json()


async def test_a_key_is_its_creators_for_one_session(api: Api) -> None:
    """The same key of another person, tenant or session names another run (D15)."""
    mine, another = await api.session(), await api.session()
    theirs = await api.globex.session(Role.MEMBER)
    places: list[tuple[SeededTenant, Role, Session]] = [
        (api.acme, Role.MEMBER, mine),
        (api.acme, Role.OWNER, mine),
        (api.acme, Role.MEMBER, another),
        (api.globex, Role.MEMBER, theirs),
    ]
    answers = []
    for world, role, session in places:
        async with api.as_role(role, world) as client:
            answers.append(await ask(client, session, "k", f"{role} of {session.id}"))
    assert [response.status_code for response in answers] == [202] * 4
    assert len({response.headers["location"] for response in answers}) == 4


async def test_a_full_line_answers_what_is_in_it(api: Api) -> None:
    """A run that was taken is found again although the line is full by now; a new one is refused."""
    session = await api.session()
    async with api.as_role(Role.MEMBER) as client:
        taken = [await ask(client, session, f"k{n}") for n in range(3)]
        again = await ask(client, session, "k0")
        refused = await ask(client, session, "k3")
        reused = await ask(client, session, "k0", "bye")
    assert again.headers["location"] == taken[0].headers["location"]
    assert is_problem(refused, 429, "session_queue_full")
    assert is_problem(reused, 422, "idempotency_key_reused", KEY)


async def test_a_draining_server_answers_what_it_has_taken(api: Api) -> None:
    """While draining no new run is taken, but one that was taken is found again (D16)."""
    session = await api.session()
    async with api.as_role(Role.MEMBER) as client:
        taken = await ask(client, session, "k")
        api.server.draining.set()
        again = await ask(client, session, "k")
        refused = await ask(client, session, "new")
    assert again.json() == taken.json()
    assert again.headers[REPLAYED] == "true"
    assert is_problem(refused, 503, "draining")
    assert await api.count("runs") == 1


@pytest.mark.parametrize(
    "body", [b"{", b"{}", b'{"input":" "}', b'{"input":"hello","inptu":1}', b" " * 300_000]
)
async def test_a_request_that_failed_leaves_its_key_free(api: Api, body: bytes) -> None:
    """After a refusal the same key takes a better body (D15)."""
    session = await api.session()
    async with api.as_role(Role.MEMBER) as client:
        client.headers["Content-Type"] = "application/json"
        failed = await client.post(f"/v1/sessions/{session.id}/runs", content=body, headers={KEY: "k"})
        free = await ask(client, session, "k")
    assert failed.status_code in {400, 413, 422}
    assert free.status_code == 202
    assert REPLAYED not in free.headers


async def test_a_refusal_for_want_of_room_leaves_its_key_free(api: Api) -> None:
    """A key refused by a full line is free when there is room again (D15)."""
    session = await api.session()
    async with api.as_role(Role.MEMBER) as client:
        taken = [(await ask(client, session, None)).json()["id"] for _ in range(3)]
        full = await ask(client, session, "k")
        await client.post(f"/v1/runs/{taken[0]}/cancel")
        free = await ask(client, session, "k", "another input")
    assert is_problem(full, 429, "session_queue_full")
    assert free.status_code == 202


async def test_a_transaction_that_was_cut_leaves_its_key_free(api: Api) -> None:
    """A request whose connection dies before its commit is a 503, and can be sent again (D12, D15)."""
    session = await api.session()
    answers: list[httpx.Response] = []

    async def post(client: httpx.AsyncClient) -> None:
        answers.append(await ask(client, session, "k"))

    async with api.as_role(Role.MEMBER) as client:
        async with (
            row_held(api.pool, "sessions", session.id) as execute,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(post, client)
            await until_waiting(api.pool)
            await execute(CUT_WHO_WAITS)
        again = await ask(client, session, "k")
    assert is_problem(answers[0], 503, "unavailable")
    assert (again.status_code, REPLAYED in again.headers) == (202, False)
    assert await api.count("runs") == 1


@pytest.mark.parametrize("key", ["k", "~" * 255, '"quoted"', "7f3c-!#$%&'*+", "a b"])
async def test_a_key_is_any_printable_ascii(api: Api, key: str) -> None:
    """Up to 255 printable characters are a key, whatever they look like."""
    session = await api.session()
    async with api.as_role(Role.MEMBER) as client:
        assert (await ask(client, session, key)).status_code == 202
        assert (await ask(client, session, key)).headers[REPLAYED] == "true"


@pytest.mark.parametrize("key", [b"", b"~" * 256, b"\xc3\xa9", b"a\tb"], ids=repr)
async def test_a_key_that_is_none_is_refused(api: Api, key: bytes) -> None:
    """A key that is empty, too long or not printable is refused by its name, not quietly dropped."""
    session = await api.session()
    async with api.as_role(Role.MEMBER) as client:
        refused = await client.post(
            f"/v1/sessions/{session.id}/runs", json={"input": "x"}, headers={KEY.encode(): key}
        )
    assert is_problem(refused, 422, "invalid", KEY)
    assert await api.count("runs") == 0


async def test_two_keys_are_refused(api: Api) -> None:
    """A request has one name."""
    session = await api.session()
    async with api.as_role(Role.MEMBER) as client:
        headers = [(KEY, "a"), (KEY, "b"), ("Content-Type", "application/json")]
        refused = await client.post(
            f"/v1/sessions/{session.id}/runs", content=b'{"input":"x"}', headers=headers
        )
    assert is_problem(refused, 422, "invalid", KEY)


@pytest.mark.rule(13)
@pytest.mark.parametrize("draining", [False, True])
@pytest.mark.parametrize("key", [b"k", b"another", b"\xc3\xa9", b"~" * 256], ids=repr)
async def test_a_key_tells_a_stranger_nothing(api: Api, key: bytes, *, draining: bool) -> None:
    """A key, used or not, sound or not, gets the 404 of an unknown session (F02)."""
    session = await api.session()
    async with api.as_role(Role.MEMBER) as client:
        await ask(client, session, "k")
    if draining:
        api.server.draining.set()
    headers = {KEY.encode(): key}
    async with api.as_role(Role.OWNER, api.globex) as stranger:
        hidden, absent = [
            await stranger.post(f"/v1/sessions/{it}/runs", json={"input": "hello"}, headers=headers)
            for it in (session.id, new_id())
        ]
    assert is_problem(hidden, 404, "not_found")
    assert hidden.content == absent.content
