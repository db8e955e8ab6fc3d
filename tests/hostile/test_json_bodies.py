"""Bodies made to break parsers, over a real socket: each is taken whole or refused in words."""

from __future__ import annotations

from collections.abc import Mapping

import httpx
import pytest
from hostile.json_bodies import REFUSED, TAKEN

from hango.domain import Role

from support.api import Api

CODES = {400: "malformed", 413: "too_large", 422: "invalid"}
JSON = {"Content-Type": "application/json"}


def taken(response: httpx.Response) -> object:
    """Return the text that was taken, or whatever the answer was instead."""
    if response.status_code != 202:
        return response.status_code, response.text
    return response.json()["input"][0]["text"]


def refusal(response: httpx.Response) -> object:
    """Return the status of a refusal in the one shape of errors, or the answer if it is none."""
    status = response.status_code
    shape = (
        response.headers["content-type"],
        response.json().get("code"),
        len(response.content) < 2000,
    )
    good = shape == ("application/problem+json", CODES.get(status), True)
    return status if good else (status, response.text[:500])


def wrong(answers: Mapping[str, object], table: Mapping[str, tuple[bytes, object]]) -> object:
    """Return the cases whose answer is not the expected one, with what it was."""
    return {name: answers[name] for name, (_, wanted) in table.items() if answers[name] != wanted}


@pytest.mark.rule(20)
async def test_what_is_json_is_taken_as_it_was_meant(api: Api) -> None:
    """C01, F04, F05: every text is stored as sent, but for what no database holds, and read so."""
    session = await api.session()
    async with api.as_role(Role.MEMBER) as client:
        made = {
            name: await client.post(f"/v1/sessions/{session.id}/runs", content=body, headers=JSON)
            for name, (body, _) in TAKEN.items()
        }
        assert wrong({name: taken(answer) for name, answer in made.items()}, TAKEN) == {}
        for name, answer in made.items():
            read = await client.get(answer.headers["location"])
            assert read.json()["input"] == [{"type": "text", "text": TAKEN[name][1]}]
    assert await api.count("runs") == len(TAKEN)


async def test_what_is_not_is_refused_and_nothing_is_stored(api: Api) -> None:
    """F05, F06: a documented 4xx in the one shape for each, and the server goes on."""
    session = await api.session()
    async with api.as_role(Role.MEMBER) as client:
        answers = {
            name: await client.post(f"/v1/sessions/{session.id}/runs", content=body, headers=JSON)
            for name, (body, _) in REFUSED.items()
        }
        assert (await client.get("/v1/me")).status_code == 200
    assert wrong({name: refusal(answer) for name, answer in answers.items()}, REFUSED) == {}
    assert await api.count("runs") == 0


PLACES = [
    ("POST", "/v1/agents", Role.ADMIN),
    ("PATCH", "/v1/agents/{agent}", Role.ADMIN),
    ("POST", "/v1/sessions", Role.MEMBER),
    ("POST", "/v1/sessions/{session}/messages", Role.MEMBER),
]


@pytest.mark.parametrize(("method", "path", "role"), PLACES)
async def test_every_place_that_takes_a_body_refuses_all_of_these(
    api: Api, method: str, path: str, role: Role
) -> None:
    """F05: a prompt, sound or not, is neither an agent nor a session nor a message."""
    session = await api.session()
    url = path.format(agent=api.acme.agent.id, session=session.id)
    bodies = {name: body for name, (body, _) in (TAKEN | REFUSED).items()}
    async with api.as_role(role) as client:
        answers = {
            name: refusal(await client.request(method, url, content=body, headers=JSON))
            for name, body in bodies.items()
        }
    # an empty object changes nothing of an agent, which is no mistake
    accepted = {"n_nothing_said"} if method == "PATCH" else set()
    strange = {name: a for name, a in answers.items() if a not in CODES and name not in accepted}
    assert strange == {}
