"""Errors: whatever a tool raises is a result for the model and a line for the log."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import NoReturn

import pytest
import trio
import trio.testing

from hango.domain import Effects
from hango.safe_errors import MAX_MESSAGE
from hango.tools import tool
from hango.tools.failures import ErrorKind

from support.tools import call, counting, failed, shout, view_of


class HostileError(Exception):
    """An error whose text cannot be read."""

    def __str__(self) -> str:
        """Fail."""
        raise SystemExit


class LyingError(Exception):
    """An error whose text is none."""

    def __str__(self) -> str:
        """Return no text."""
        return 5  # type: ignore[return-value]  # noqa: PLE0307  # the lie under test


def raising(error: BaseException) -> Callable[[], NoReturn]:
    """Return a function that raises *error*."""

    def body() -> NoReturn:
        raise error

    return body


def _nested(depth: int) -> BaseException:
    error: Exception = ValueError("inside")
    for _ in range(depth):
        error = ExceptionGroup("around", [error])
    return error


ERRORS: list[tuple[BaseException, str]] = [
    (ValueError("plain"), "ValueError: plain"),
    (ValueError(), "ValueError"),
    (KeyError("k"), "KeyError: 'k'"),
    (SystemExit(3), "SystemExit: 3"),
    (KeyboardInterrupt(), "KeyboardInterrupt"),
    (GeneratorExit(), "GeneratorExit"),
    (StopIteration(1), "RuntimeError"),
    (StopAsyncIteration(1), "StopAsyncIteration"),
    (HostileError(), "HostileError: (its message could not be read)"),
    (LyingError(), "LyingError: (its message could not be read)"),
    (type("E" * 5000, (Exception,), {})("m"), "EEE"),
    (ValueError("nul\0 \ud800"), "ValueError: nul\ufffd \ufffd"),
    (ValueError("x" * 20_000_000), "ValueError: xxx"),
    (ExceptionGroup("g", [ValueError("a"), OSError("b")]), "ValueError: a; OSError: b"),
    (BaseExceptionGroup("g", [SystemExit("a"), KeyError(1)]), "SystemExit: a; KeyError: 1"),
    (ExceptionGroup("g", [ValueError(str(i)) for i in range(9999)]), "ValueError: 0; ValueError: 1"),
    (_nested(3), "ValueError: inside"),
    (_nested(5000), "ValueError: inside"),
    (trio.TooSlowError(), "TooSlowError"),
]


@pytest.mark.rule(18)
@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize(("error", "text"), ERRORS, ids=range(len(ERRORS)))
async def test_whatever_a_tool_raises_is_an_error_result(
    error: BaseException, text: str, kind: str
) -> None:
    """C10, C12: any exception, also SystemExit and groups; type and bounded text, and it is counted."""
    body = raising(error)

    async def async_body() -> NoReturn:
        body()

    with counting("t", "exception"):
        result = await failed(body if kind == "sync" else async_body)
    assert text in result.for_llm or result.for_llm.startswith(text.partition(":")[0])


@pytest.mark.rule(18)
@pytest.mark.parametrize(
    ("text", "secrets"),
    [
        ("{'Authorization': 'Bearer abc.def-ghi'}", ["abc.def"]),
        ("headers=[(b'authorization', b'Basic dXNlcjpwYXNz')]", ["dXNlcjpwYXNz"]),
        ("Authorization: token s3cr3t-value\r\nHost: a", ["s3cr3t"]),
        ("Cookie: session=s3cr3t; other=s3cr3t", ["s3cr3t"]),
        ("got bearer abcdefghijkl back", ["abcdefghijkl"]),
        ("x-api-key: s3cr3t", ["s3cr3t"]),
        ('{"api_key": "s3cr3t", "a": 1}', ["s3cr3t"]),
        ("https://api.test/?api_key=s3cr3t&x=1", ["s3cr3t"]),
        ("https://api.test/?access_token=s3cr3t#f", ["s3cr3t"]),
        ("client_secret=s3cr3t", ["s3cr3t"]),
        ("password='s3cr3t' is wrong", ["s3cr3t"]),
        ("cannot connect to postgresql://app:s3cr3t@db:5432/x", ["s3cr3t"]),
        ("redis://:s3cr3t@cache", ["s3cr3t"]),
        ("https://u:p@s3cr3t@host/", ["s3cr3t"]),
        ("key hgo_abc123DEF is revoked", ["hgo_abc123"]),
        ("Incorrect API key provided: sk-proj-abcdefgh1234", ["sk-proj", "1234"]),
        ("ghp_abcdefghijklmnop1234 AKIAABCDEFGHIJKLMNOP", ["ghp_a", "AKIAA"]),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl", ["eyJ"]),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIEs3cr3t\n-----END RSA PRIVATE KEY-----", ["s3cr3t"]),
        ("x" * (MAX_MESSAGE - 20) + " password=" + "s3cr3t" * 20, ["s3cr"]),
        ("x" * (4 * MAX_MESSAGE - 4) + "sk-abcdefghijk", ["sk-"]),
    ],
)
async def test_secrets_in_an_error_do_not_reach_the_model(text: str, secrets: list[str]) -> None:
    """C12: keys, tokens, headers and passwords are taken out, also where the text is cut."""
    result = await failed(raising(RuntimeError(text)))
    for secret in secrets:
        assert secret not in result.for_llm


@pytest.mark.rule(18)
@pytest.mark.parametrize(
    "text",
    [
        "unexpected token, line 3",
        "no such file: /etc/hosts",
        "Basic authentication failed",
        "see https://example.com:8080/path and mail me@example.com",
        "task-runner and risk-free",
    ],
)
async def test_ordinary_text_of_an_error_stays(text: str) -> None:
    """A model acts on what it can read."""
    assert (await failed(raising(RuntimeError(text)))).for_llm == f"RuntimeError: {text}"


@pytest.mark.rule(18)
async def test_redacting_takes_no_time_on_hostile_text() -> None:
    """C12: text made to be slow for patterns is bounded before it meets them."""
    for part in ("://a:", "password=", "Bearer ", "-----BEGIN PRIVATE KEY-----", "eyJaaaaaaaa."):
        await failed(raising(RuntimeError(part * 1_000_000)))


@pytest.mark.rule(18)
async def test_the_log_has_type_and_frames_and_no_content(caplog: pytest.LogCaptureFixture) -> None:
    """C12: what a tool was told and what it said are not for the log."""

    @tool(effects=Effects.READ_ONLY)
    async def explode(text: str) -> NoReturn:
        raise LookupError(text)

    with caplog.at_level(logging.INFO):
        await call(view_of(explode), "explode", text="confidential")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "builtins.LookupError" in record.getMessage()
    assert re.search(rf"{re.escape(__name__)}\.explode:\d+", record.getMessage())
    assert "confidential" not in str(record.__dict__)
    assert record.exc_info is None


@pytest.mark.rule(18)
async def test_the_log_repeats_no_name_a_model_made_up(caplog: pytest.LogCaptureFixture) -> None:
    """C11: nor its arguments."""
    with caplog.at_level(logging.INFO):
        await call(view_of(shout), "confidential", text="confidential")
        await call(view_of(shout), "shout", confidential="confidential")
    assert len(caplog.records) == 2
    assert all("confidential" not in str(record.__dict__) for record in caplog.records)


def test_error_types_are_a_closed_set() -> None:
    """Labels are bounded."""
    assert len(ErrorKind) == 10
