"""The access log: a line for each request, with its route, its caller and its id, and no path."""

from __future__ import annotations

import logging

import pytest
import trio

from hango.domain import Role

from support.api import Api


async def test_every_request_has_a_line_and_its_id(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    """A client's own id is kept if it is harmless; a path, which it writes, is never logged."""
    user = api.acme.users[Role.MEMBER]
    with caplog.at_level(logging.INFO, "hango.access"):
        async with api.client(user) as client:
            me = await client.get("/v1/me", headers={"x-request-id": "from-the-proxy_1"})
            lost = await client.get("/MARKER?MARKER=1", headers={"x-request-id": "MARKER MARKER"})
            await client.get("/healthz")
        async with api.client() as client:
            refused = await client.get("/v1/runs")
        with trio.fail_after(30):
            while len(_lines(caplog)) < 3:  # a line is written after the answer
                await trio.lowlevel.checkpoint()
    assert me.headers["x-request-id"] == "from-the-proxy_1"
    lines = _lines(caplog)
    assert [line.partition(",")[0] for line in lines] == [
        "GET /v1/me 200",
        "GET _unmatched 404",
        "GET /v1/runs 401",
    ]
    for line, answer in zip(lines, (me, lost, refused), strict=True):
        assert line.endswith(f"request {answer.headers['x-request-id']}")
    assert f"user {user.id}" in lines[0]
    assert "MARKER" not in "".join(lines)


def _lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line.getMessage() for line in caplog.records if line.name == "hango.access"]
