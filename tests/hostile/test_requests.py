"""Requests around the body: ids in every spelling, headers nobody sends, and connections that end."""

from __future__ import annotations

import pytest
import trio

from hango.domain import Role

from support.api import Api, is_problem

# --- what is wrong with a body is said ------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b'{"input":%s1%s}' % (b"[" * 64, b"]" * 64), "nested too deep"),
        (b'{"input":%s}' % (b"9" * 2000), "more than 1000 digits"),
        (b'{"input":%s}' % (b"9" * 5000), "number that is too long"),
        (b'{"input":1e400}', "beyond the range of a double"),
        (b'{"input":NaN}', "NaN is not a JSON number"),
        (b'{"a":1,"a":2}', "repeated key"),
        (b'{"input":"\xff"}', "not UTF-8"),
        (b'{"input":', "line 1 column 10"),
    ],
)
async def test_a_refusal_says_what_is_wrong(api: Api, body: bytes, said: str) -> None:
    """F05: whoever sent it can mend it."""
    async with api.as_role(Role.MEMBER) as client:
        headers = {"Content-Type": "application/json"}
        answer = await client.post("/v1/sessions", content=body, headers=headers)
    assert is_problem(answer, 400, "malformed")
    assert said in answer.json()["detail"]


# --- ids ------------------------------------------------------------------------------------

SPELLINGS = {
    "as it is": ("{id}", 200),
    "capitals": ("{upper}", 200),
    "number": ("1", 404),
    "nothing": ("%20", 404),
    "blank behind": ("{id}%20", 404),
    "newline behind": ("{id}%0a", 404),
    "nul behind": ("{id}%00", 404),
    "nul": ("%00", 404),
    "braces": ("%7B{id}%7D", 404),
    "urn": ("urn:uuid:{id}", 404),
    "no hyphens": ("{hex}", 404),
    "one digit less": ("{less}", 404),
    "one digit more": ("{id}0", 404),
    "other digits": ("{wide}", 404),
    "not utf-8": ("%ff%fe", 404),
    "half a character": ("%ed%a0%80", 404),
    "up": ("..", 404),
    "up in escapes": ("%2e%2e%2fruns", 404),
    "escaped twice": ("%2500", 404),
    "sql": ("'%20or%20'1'='1", 404),
    "a format": ("%7B0.__class__%7D", 404),
    "long": ("a" * 8000, 404),
}


async def test_an_id_has_one_spelling_and_capitals(api: Api) -> None:
    """F04, F05: everything else is nobody's id, wherever it stands, and never an error of ours."""
    session = await api.session()
    run = await api.acme.run(session, role=Role.MEMBER)
    wrong = []
    async with api.as_role(Role.MEMBER) as client:
        for place, of in (("/v1/runs/", run.id), ("/v1/sessions/", session.id)):
            text = str(of)
            forms = {
                "id": text,
                "upper": text.upper(),
                "hex": of.hex,
                "less": text[:-1],
                "wide": text[:-1] + "%EF%BC%91",
            }
            for name, (spelling, status) in SPELLINGS.items():
                answer = await client.get(place + spelling.format(**forms))
                good = answer.status_code == status and (status == 200 or "code" in answer.json())
                wrong += [] if good else [(place, name, answer.status_code, answer.text)]
    assert wrong == []


# --- headers --------------------------------------------------------------------------------

HEADERS = {
    "request id with nul": (b"X-Request-Id: a\0b", b"400"),
    "request id with a bare return": (b"X-Request-Id: a\rb", b"400"),
    "request id beyond ascii": (b"X-Request-Id: \xff\xfe", b"200"),
    "request id without end": (b"X-Request-Id: " + b"x" * 10_000, b"200"),
    "folded": (b"X: a\r\n b", b"400"),
    "no name": (b": x", b"400"),
    "blank before the colon": (b"X : x", b"400"),
    "no colon": (b"nonsense", b"400"),
    "traceparent of nothing": (b"traceparent: 00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-00", b"200"),
    "traceparent of 10000": (b"traceparent: " + b"0" * 10_000, b"200"),
    "type without end": (b"Content-Type: " + b"application/json;" * 500, b"200"),
    "length not a number": (b"Content-Length: x", b"400"),
    "length negative": (b"Content-Length: -1", b"400"),
    "length with a sign": (b"Content-Length: +5", b"400"),
    "length in other digits": ("Content-Length: \u0665".encode(), b"400"),
    "two lengths": (b"Content-Length: 1\r\nContent-Length: 2", b"400"),
    "length and chunks": (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0", b"400"),
    "other transfer encoding": (b"Transfer-Encoding: gzip", b"501"),
    "expects the moon": (b"Expect: the-moon", b"200"),
    "range of what is none": (b"Range: bytes=0-,0-,0-", b"200"),
    "another host": (b"X-Forwarded-Host: evil.test\r\nX-Forwarded-For: 127.0.0.1", b"200"),
    "another method": (b"X-HTTP-Method-Override: DELETE", b"200"),
    "many": (b"\r\n".join(b"X-%d: y" % n for n in range(500)), b"200"),
}


async def test_headers_nobody_sends_have_an_answer(api: Api) -> None:
    """F04, F10: a header that cannot be is refused, a strange one passed over; none is a 500."""
    answers = {name: await answer_to(api, header) for name, (header, _) in HEADERS.items()}
    assert {name: a for name, a in answers.items() if a != HEADERS[name][1]} == {}


async def answer_to(api: Api, header: bytes) -> bytes:
    """Ask who one is, with one more header; return the status, or nothing if there was none."""
    head = api.head("GET", "/v1/me").removesuffix(b"\r\n")
    with trio.fail_after(20):
        async with await api.connect() as stream:
            await stream.send_all(head + header + b"\r\n\r\n")
            return (await stream.receive_some()).split(b" ")[1]


# --- connections ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "declared", ["Content-Length: 1000000", "Content-Length: 100", "Transfer-Encoding: chunked"]
)
async def test_an_answer_before_the_end_of_a_body_says_that_it_is_the_last(
    api: Api, declared: str
) -> None:
    """F06: a client that was not told would lose its next request, on a connection that is closing."""
    async with await api.connect() as stream:
        head = api.head("POST", "/v1/nothing", "Content-Type: application/json", declared)
        await stream.send_all(head)
        with trio.fail_after(20):
            answer = b"".join([data async for data in stream])
    assert answer.startswith((b"HTTP/1.1 404 ", b"HTTP/1.1 413 "))
    assert b"\r\nconnection: close\r\n" in answer.lower()


async def test_a_connection_goes_on_after_a_refusal(api: Api) -> None:
    """F06: a body that was read and refused costs no connection, one that was not only its own."""
    session = await api.session()
    path = f"/v1/sessions/{session.id}/runs"
    bodies = [b"{", b'{"input":"x"}', b"x" * 300_000, b'{"input":"y"}', b"x" * 2_000_000]
    async with api.as_role(Role.MEMBER) as client:
        client.headers["Content-Type"] = "application/json"
        answers = [await client.post(path, content=body) for body in bodies * 20]
    assert [answer.status_code for answer in answers] == [400, 202, 413, 202, 413] * 20
    assert all("connection" not in answer.headers for answer in answers[::5])
