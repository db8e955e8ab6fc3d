"""Bodies and paths nobody should send: every one has its answer, and none is a 500."""

from __future__ import annotations

import pytest
import trio

from hango.db.pool import Pool
from hango.domain import Role, Session

from support.api import SETTINGS, Api, is_problem, serving

JSON = "application/json"

BODIES = [
    # content type, body, status, code
    (JSON, b"", 400, "malformed"),
    (JSON, b"{", 400, "malformed"),
    (JSON, b'{"input":"x"} x', 400, "malformed"),
    (JSON, b"{'input':'x'}", 400, "malformed"),
    (JSON, b'{"input":"a\xff"}', 400, "malformed"),
    (JSON, b'{"input":"\xed\xa0\x80"}', 400, "malformed"),
    (JSON, '{"input":"x"}'.encode("utf-16"), 400, "malformed"),
    (JSON, b'\xef\xbb\xbf{"input":"x"}', 400, "malformed"),
    (JSON, b'{"input":NaN}', 400, "malformed"),
    (JSON, b'{"input":-Infinity}', 400, "malformed"),
    (JSON, b'{"input":1e999}', 400, "malformed"),
    (JSON, b'{"input":' + b"9" * 100_000 + b"}", 400, "malformed"),
    (JSON, b'{"input":"x","input":"y"}', 400, "malformed"),
    (JSON, b"[" * 200_000, 400, "malformed"),
    (JSON, b'{"a":' * 50_000, 400, "malformed"),
    (JSON, b"\x1f\x8b\x08\x00gzip", 400, "malformed"),
    (JSON, b"[]", 422, "invalid"),
    (JSON, b"null", 422, "invalid"),
    (JSON, b"3", 422, "invalid"),
    (JSON, b'"input"', 422, "invalid"),
    (JSON, b"{}", 422, "invalid"),
    (JSON, b'{"input":["x"]}', 422, "invalid"),
    (JSON, b'{"input":"x","' + b"k" * 100_000 + b'":1}', 422, "invalid"),
    (JSON, b'{"input":[' + b",".join([b'{"type":"text","text":"x"}'] * 9_000) + b"]}", 422, "invalid"),
    (JSON, b'{"input":"' + b"x" * 300_000 + b'"}', 413, "too_large"),
    (None, b'{"input":"x"}', 415, "unsupported_media_type"),
    ("", b'{"input":"x"}', 415, "unsupported_media_type"),
    ("text/plain", b'{"input":"x"}', 415, "unsupported_media_type"),
    ("application/x-www-form-urlencoded", b"input=x", 415, "unsupported_media_type"),
    ("multipart/form-data; boundary=x", b"--x--", 415, "unsupported_media_type"),
    ("application/jsonp", b'{"input":"x"}', 415, "unsupported_media_type"),
]


@pytest.fixture
async def session(api: Api) -> Session:
    """Have a session of acme's member."""
    return await api.session()


@pytest.mark.parametrize(("kind", "body", "status", "code"), BODIES, ids=lambda value: repr(value)[:40])
async def test_a_hostile_body_has_its_answer(
    api: Api, session: Session, kind: str | None, body: bytes, status: int, code: str
) -> None:
    """Every body that is no request is refused in the one shape of errors (F05, F06)."""
    headers = {} if kind is None else {"Content-Type": kind}
    async with api.as_role(Role.MEMBER) as client:
        response = await client.post(f"/v1/sessions/{session.id}/runs", content=body, headers=headers)
    assert is_problem(response, status, code, response.json().get("field"))
    assert len(response.content) < 2000
    assert await api.count("runs") == 0


@pytest.mark.parametrize("kind", [JSON, "Application/JSON", "application/json; charset=utf-8"])
async def test_json_is_json_however_it_is_called(api: Api, session: Session, kind: str) -> None:
    """The type of a body has no case, and may have parameters."""
    async with api.as_role(Role.MEMBER) as client:
        response = await client.post(
            f"/v1/sessions/{session.id}/runs",
            content='{"input":"grüß\u2028dich"}'.encode(),
            headers={"Content-Type": kind},
        )
    assert response.status_code == 202
    assert response.json()["input"] == [{"type": "text", "text": "grüß\u2028dich"}]


async def test_a_compressed_body_is_refused(api: Api, session: Session) -> None:
    """A body is taken as it is, never unpacked (F06)."""
    headers = {"Content-Type": JSON, "Content-Encoding": "gzip"}
    async with api.as_role(Role.MEMBER) as client:
        response = await client.post(
            f"/v1/sessions/{session.id}/runs", content=b"\x1f\x8b", headers=headers
        )
    assert is_problem(response, 415, "unsupported_media_type")


@pytest.mark.rule(20)
async def test_what_cannot_be_stored_is_replaced(api: Api, session: Session) -> None:
    """NUL and lone surrogates in a prompt become U+FFFD and are stored so (F04)."""
    async with api.as_role(Role.MEMBER) as client:
        client.headers["Content-Type"] = JSON
        made = await client.post(
            f"/v1/sessions/{session.id}/runs", content=rb'{"input":"a\u0000b\ud800c"}'
        )
        read = await client.get(made.headers["location"])
    assert made.status_code == 202
    assert read.json()["input"] == [{"type": "text", "text": "a\ufffdb\ufffdc"}]


async def test_a_chunked_body_is_bounded_too(api: Api, session: Session) -> None:
    """A body without a length is cut off at the same size, before its end has been sent (F06)."""
    chunk = b"2710\r\n" + b"x" * 10_000 + b"\r\n"
    answer = await say(api, session, "Transfer-Encoding: chunked", chunk * 1000)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"too_large" in answer
    assert await api.count("runs") == 0


async def test_a_body_that_does_not_come_is_not_waited_for(pool: Pool) -> None:
    """A declared size is judged before a byte arrives, and a slow body has its time (F06)."""
    settings = type(SETTINGS)(max_body=1000, body_timeout=0.2)
    async with serving(pool, settings) as api:
        session = await api.session()
        large = await say(api, session, "Content-Length: 1000000000")
        slow = await say(api, session, "Content-Length: 100", b'{"input":')
        dripping = await say(api, session, "Transfer-Encoding: chunked", b"1\r\n{\r\n")
    assert large.startswith(b"HTTP/1.1 413 ")
    assert b"too_large" in large
    for answer in (slow, dripping):
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"request_timeout" in answer


async def say(api: Api, session: Session, header: str, body: bytes = b"") -> bytes:
    """Send the beginning of a request; return all that comes until the server hangs up."""
    head = api.head("POST", f"/v1/sessions/{session.id}/runs", f"Content-Type: {JSON}", header)
    with trio.fail_after(20):
        async with await api.connect() as stream, trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, head + body)
            return b"".join([data async for data in stream])


PATHS = [
    ("GET", "/v1/runs/%00", 404),
    ("GET", "/v1/runs/%ff", 404),
    ("GET", "/v1/runs/%zz", 404),
    ("GET", "/v1/runs/1", 404),
    ("GET", "/v1/runs/{id}%20", 404),
    ("GET", "/v1/runs/%7B{id}%7D", 404),
    ("GET", "/v1/runs/urn:uuid:{id}", 404),
    ("GET", "/v1/runs/..%2fagents", 404),
    ("GET", "/v1/runs/%0d%0aX-Evil:1", 404),
    ("GET", "/v1/runs/{id}/", 404),
    ("GET", "/v1//runs", 404),
    ("GET", "//v1/runs", 404),
    ("GET", "/v1", 404),
    ("GET", "/", 404),
    ("GET", "/v1/nothing", 404),
    ("POST", "/v1/sessions/%00/runs", 404),
    ("POST", "/v1/runs/x/cancel", 404),
    ("DELETE", "/v1/runs/{id}", 405),
    ("PUT", "/v1/agents", 405),
    ("POST", "/healthz", 405),
    ("GET", "/v1/runs?state=%00", 422),
    ("GET", "/v1/runs?limit=%ff%fe", 422),
    ("GET", "/v1/runs?cursor=" + "A" * 5000, 422),
]


@pytest.mark.parametrize(("method", "path", "status"), PATHS)
async def test_a_strange_path_has_its_answer(
    api: Api, session: Session, method: str, path: str, status: int
) -> None:
    """Whatever a path or query holds is a problem of the client's, in the one shape (F04, F05)."""
    codes = {404: "not_found", 405: "method_not_allowed", 422: "invalid"}
    async with api.as_role(Role.MEMBER) as client:
        response = await client.request(method, path.format(id=session.id))
    assert is_problem(response, status, codes[status], response.json().get("field"))
    assert ("allow" in response.headers) == (status == 405)
