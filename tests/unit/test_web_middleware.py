"""What the server lets in: bodies end one byte after the bound, and paths begin with a slash."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypercorn.typing import ASGIReceiveCallable, ASGIReceiveEvent

from hango.web.server.middleware import _cut_body, _path_of


def connection(parts: Sequence[bytes]) -> ASGIReceiveCallable:
    """Be a client that sends *parts* as one body, and hangs up."""
    events: list[ASGIReceiveEvent] = [
        {"type": "http.request", "body": part, "more_body": True} for part in parts
    ]
    events += [{"type": "http.request", "body": b"", "more_body": False}, {"type": "http.disconnect"}]
    left = iter(events)

    async def receive() -> ASGIReceiveEvent:
        return next(left)

    return receive


@pytest.mark.parametrize(
    ("parts", "arrives"),
    [
        ([], b""),
        ([b"12345"], b"12345"),
        ([b"1", b"2", b"345"], b"12345"),
        ([b"123456"], b"123456"),
        ([b"1234567"], b"123456"),
        ([b"123", b"4567", b"89"], b"123456"),
        ([b"x" * 100] * 1000, b"x" * 6),
    ],
)
async def test_a_body_is_cut_one_byte_after_its_bound(parts: list[bytes], arrives: bytes) -> None:
    """With a bound of five, what is passed on is at most six bytes, has one end, and no more (F06)."""
    receive = _cut_body(connection(parts), 6)
    body, ends = b"", 0
    while (event := await receive())["type"] == "http.request":
        assert ends == 0
        body += event["body"]
        ends += not event["more_body"]
    assert (body, ends) == (arrives, 1)
    assert event["type"] == "http.disconnect"


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/v1/me", "/v1/me"),
        ("//v1", "//v1"),
        ("http://hango/v1/me", "/v1/me"),
        ("http://hango", "/"),
        ("http://[", "/"),
        ("*", "/"),
        ("", "/"),
        ("hango:443", "/"),
    ],
)
def test_a_target_becomes_a_path(target: str, path: str) -> None:
    """Whatever a client aims at, the application is asked for a path (F10)."""
    assert _path_of(target) == path
