"""The log: which run a line is about, and what no line ever holds."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
import trio

from hango.redaction import redact
from hango.telemetry import logs

KEY = "hgo_" + "k" * 43


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """Give the root logger back as it was."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield root
    root.handlers[:], _ = before
    root.setLevel(before[1])


def fail(message: str) -> None:
    """Raise errors that hold content, out of another one that does."""
    try:
        dict[str, str]()[message]
    except KeyError as error:
        raise ExceptionGroup(message, [ValueError(message)]) from error


@pytest.mark.usefixtures("root")
def test_a_json_line_says_which_run_it_is_about(capsys: pytest.CaptureFixture[str]) -> None:
    """Bound fields are on every line within; inner ones add to outer ones, and end with them."""
    logs.set_up(style="json", level="info")
    run, session = uuid4(), uuid4()
    log = logging.getLogger("hango.test")
    with logs.bind(session_id=session, turn=1):
        with logs.bind(run_id=run, turn=2):
            log.info("within")
        log.info("outside")
    log.debug("not written")
    inner, outer = map(json.loads, capsys.readouterr().err.splitlines())
    assert inner["message"] == "within"
    assert inner["level"] == "info"
    assert inner["hango.run.id"] == str(run)
    assert inner["hango.session.id"] == str(session)
    assert inner["hango.turn"] == 2
    assert "hango.run.id" not in outer
    assert outer["hango.turn"] == 1


@pytest.mark.usefixtures("root")
async def test_tasks_and_threads_begun_within_are_bound_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A line of a tool in a thread names its run, and two runs do not mix."""
    logs.set_up(style="json", level="info")

    async def work(run_turn: int) -> None:
        with logs.bind(turn=run_turn):
            await trio.to_thread.run_sync(logging.getLogger("hango.test").info, f"turn {run_turn}")

    async with trio.open_nursery() as nursery:
        for turn in range(5):
            nursery.start_soon(work, turn)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert len(lines) == 5
    assert all(line["message"] == f"turn {line['hango.turn']}" for line in lines)


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("style", ["text", "json"])
def test_an_exception_is_told_by_type_and_frames_without_its_message(
    style: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Messages hold what users and models said; groups and causes are told, theirs neither."""
    logs.set_up(style="json" if style == "json" else "text", level="info")
    try:
        fail("what the user said")
    except ExceptionGroup:
        logging.getLogger("hango.test").exception("it failed")
    told = capsys.readouterr().err
    assert "what the user said" not in told
    for word in ("it failed", "ExceptionGroup", "ValueError", "KeyError", "test_logs.py", "in fail"):
        assert word in told


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("style", ["text", "json"])
def test_no_line_can_be_forged_and_no_secret_is_written(
    style: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """S-L7: line breaks, escapes and marks of direction stay within their line, and are only shown."""
    logs.set_up(style="json" if style == "json" else "text", level="info")
    logging.getLogger("hango.test").info("a\r\nb\x00\ud800\x1b[2J\x9b\u2028\u202e %s", KEY)
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 1
    assert told.removesuffix("\n").isprintable()
    assert KEY not in told
    assert "[redacted]" in told


@pytest.mark.usefixtures("root")
def test_libraries_that_tell_every_request_are_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    """Their warnings are heard, their chatter is not."""
    logs.set_up(style="text", level="info")
    logging.getLogger("httpx").info("GET https://…")
    logging.getLogger("asyncpg.pool").warning("heard")
    assert capsys.readouterr().err.splitlines()[0].endswith("asyncpg.pool: heard")


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"key {KEY} leaked", KEY),
        ("sk-proj-abcDEF123456_x", "abcDEF123456"),
        ("Authorization: Bearer abc.def.ghi", "abc.def.ghi"),
        ("{'authorization': 'Basic dXNlcjpwYXNz'}", "dXNlcjpwYXNz"),
        ('{"Authorization": "token-1234"}', "token-1234"),
        ("sent bearer abcdefghij", "abcdefghij"),
        ("postgresql://user:p@ss:word@db/hango", "ss:word"),
        ("https://user:hunter2@example.com/x", "hunter2"),
        ("api_key=hunter2&x=1", "hunter2"),
        ('"password": "hunter2"', "hunter2"),
        ("secret='basic dXNlcjpwYXNzd29yZA=='", "dXNlcjpwYXNzd29yZA"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----", "MIIabc"),
        ("-----BEGIN PRIVATE KEY-----\nMIIabc", "MIIabc"),
        ("x-eyJ-eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0", "c2lnbmF0"),
        ("AKIAABCDEFGHIJKLMNOP", "ABCDEFGHIJKLMNOP"),
    ],
)
def test_what_looks_like_a_secret_is_hidden(text: str, secret: str) -> None:
    """Keys by their prefix, credentials by the name before them, passwords in URLs."""
    assert secret not in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "a risk-free task-list",
        "http://localhost:8080/v1",
        "at 10:30 ask Bearer",
        "sk- is a prefix",
        "-----BEGIN CERTIFICATE-----\nMIIabc",
        "eyJhbGciOiJI.eyJzdWIi and no third part",
    ],
)
def test_plain_text_stays_as_it_is(text: str) -> None:
    """What only resembles a secret is left alone."""
    assert redact(text) == text


class _Nameless(type):
    def __getattribute__(cls, name: str) -> object:
        if name == "__qualname__":
            raise RuntimeError("no name")
        return super().__getattribute__(name)


class _Hostile(Exception, metaclass=_Nameless):
    """An error whose class cannot tell its name."""


@pytest.mark.usefixtures("root")
def test_an_error_that_cannot_be_named_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    """C12: what foreign code raises never breaks the log, which would end what logs it."""
    logs.set_up(style="text", level="info")
    logging.getLogger("hango.test").error("it failed", exc_info=_Hostile())
    told = capsys.readouterr().err
    assert "it failed" in told
    assert "_Hostile" in told


def _chained(depth: int) -> BaseException:
    error = ValueError("secret")
    for _ in range(depth):
        later = ValueError("secret")
        later.__cause__, error = error, later
    return error


def _nested(depth: int) -> BaseException:
    error: Exception = ValueError("secret")
    for _ in range(depth):
        error = ExceptionGroup("secret", [error])
    return error


def _circular(_: int) -> BaseException:
    one, other = ValueError("secret"), ValueError("secret")
    one.__cause__, other.__cause__ = other, one
    return one


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("make", [_chained, _nested, _circular])
def test_errors_without_end_are_logged_in_bounds(
    make: Callable[[int], BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    """Foreign code chains and nests its errors at will; the log stays up and keeps a bound."""
    logs.set_up(style="text", level="info")
    logging.getLogger("hango").error("it failed", exc_info=make(20_000))
    written = capsys.readouterr().err
    assert "it failed" in written
    assert "Logging error" not in written
    assert "secret" not in written
    assert 1 < len(written.splitlines()) <= 201
