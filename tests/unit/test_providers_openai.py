"""The Chat Completions adapter as a client of HTTP: addresses, keys, errors, silence, leaving."""

from __future__ import annotations

import json
import logging

import pytest

from hango.agent.accumulator import Accumulator
from hango.agent.ports import Provider
from hango.domain import (
    PromptMessage,
    ProviderRequest,
    StopReason,
    ToolUseBlock,
)
from hango.errors import ContextExceeded, ProviderError, RegistrationError
from hango.providers import OpenAIProvider
from hango.providers.openai import chat_url

from support.llm_server import (
    Reply,
    error_reply,
    serve_llm,
    stream_reply,
)
from support.provider_calls import KEY, REQUEST, WHOLE, ask, failure


def test_it_is_a_provider() -> None:
    """It fits the port of the loop by shape."""
    provider: Provider = OpenAIProvider()
    assert provider.name == "openai"


# --- where and what is asked -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "posted"),
    [
        ("http://h", "http://h/v1/chat/completions"),
        ("http://h/", "http://h/v1/chat/completions"),
        ("http://h:1/v1", "http://h:1/v1/chat/completions"),
        (" http://h/v1/ ", "http://h/v1/chat/completions"),
        ("https://h/openai/v1//", "https://h/openai/v1/chat/completions"),
        ("https://h/v1beta/openai/", "https://h/v1beta/openai/chat/completions"),
        ("https://h/api/v4", "https://h/api/v4/chat/completions"),
        ("https://h/v1/chat/completions", "https://h/v1/chat/completions"),
        ("https://h/v1/chat/completions/", "https://h/v1/chat/completions"),
        ("https://h/v1?api-version=1", "https://h/v1/chat/completions?api-version=1"),
        ("http://[::1]:8080", "http://[::1]:8080/v1/chat/completions"),
    ],
)
def test_base_urls_are_taken_as_people_write_them(base: str, posted: str) -> None:
    """With or without /v1, with or without a slash, or the whole address."""
    assert str(chat_url(base)) == posted


@pytest.mark.parametrize(
    "base", ["", "h", "h/v1", "ftp://h", "http://", "http:///v1", "http://[", "file:///x"]
)
def test_other_base_urls_are_refused_at_once(base: str) -> None:
    """A mistake in the settings shows at start, not at the first run."""
    with pytest.raises(RegistrationError):
        OpenAIProvider(base)


@pytest.mark.parametrize("key", ["a\nb", "a\x00", "ключ", "sk-\ud800"])
def test_a_key_no_header_can_carry_is_refused_without_quoting_it(key: str) -> None:
    """Nor does the text of the provider show one."""
    with pytest.raises(RegistrationError) as caught:
        OpenAIProvider(api_key=key)
    assert key not in str(caught.value)
    assert KEY not in repr(OpenAIProvider("http://u:secret@h", KEY))
    assert "secret" not in repr(OpenAIProvider("http://u:secret@h", KEY))
    assert KEY not in repr(OpenAIProvider(api_key=KEY)._call(REQUEST))


async def test_the_key_goes_into_its_header() -> None:
    """And into nothing else; white space round it is dropped."""
    async with serve_llm(stream_reply(WHOLE)) as server:
        await ask(OpenAIProvider(server.url, f" {KEY}\n"))
        (received,) = server.received
    assert (received.method, received.target) == ("POST", "/v1/chat/completions")
    assert received.headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in json.dumps(dict(received.body))
    assert received.body["stream"] is True


async def test_a_local_server_needs_no_key() -> None:
    """An empty key sends no header at all."""
    async with serve_llm(stream_reply(WHOLE)) as server:
        await ask(OpenAIProvider(server.url, api_key=""))
        assert "authorization" not in server.received[0].headers


@pytest.mark.parametrize(
    ("base", "field"),
    [
        ("https://api.openai.com/v1", "max_completion_tokens"),
        ("https://x.openai.azure.com/openai/v1", "max_completion_tokens"),
        ("https://api.groq.com/openai/v1", "max_tokens"),
        ("http://localhost:11434", "max_tokens"),
    ],
)
def test_the_bound_on_the_answer_has_the_name_the_server_knows(base: str, field: str) -> None:
    """OpenAI's newer models refuse the name that all others know."""
    body = json.loads(OpenAIProvider(base)._call(REQUEST).body)
    assert body[field] == 100
    assert len({"max_tokens", "max_completion_tokens"} & set(body)) == 1


async def test_a_request_that_cannot_be_written_is_an_error_of_the_call() -> None:
    """The loop meets nothing but provider errors."""
    bad = PromptMessage("assistant", (ToolUseBlock("a", "f", {"x": float("nan")}),))
    with pytest.raises(ProviderError) as caught:
        await ask(OpenAIProvider("http://127.0.0.1:1"), ProviderRequest("m", "", (bad,), (), 1))
    assert (caught.value.code, caught.value.retryable) == ("invalid_request", False)


# --- answers that are errors -------------------------------------------------------------------


@pytest.mark.rule(16)
async def test_an_error_answer_names_itself_and_its_wait() -> None:
    """A15, A17: code, sentence, whether to retry, and when."""
    body = '{"error": {"message": "Slow down", "type": "x", "code": "rate_limit_exceeded"}}'
    error = await failure(error_reply(429, body, retry_after="7"))
    assert (error.code, error.retryable, error.retry_after) == ("rate_limit_exceeded", True, 7.0)
    assert str(error) == "openai answered 429 (rate_limit_exceeded): Slow down"


@pytest.mark.rule(18)
async def test_a_call_that_the_server_refuses_is_answered_as_a_call() -> None:
    """P3: Groq answers 400 for what its model wrote; the model is told, and may write it again."""
    error = {
        "code": "tool_use_failed",
        "failed_generation": '[{"name": "get_time"}]',
    }
    async with serve_llm(error_reply(400, json.dumps({"error": error}))) as server:
        events = await ask(OpenAIProvider(server.url))
    answer = Accumulator(turn=1)
    for event in events:
        answer.push(event)
    (call,) = answer.answer().calls
    assert (call.name, call.raw_input) == ("get_time", 'tool_use_failed: [{"name": "get_time"}]')
    assert answer.answer().stop_reason is StopReason.TOOL_USE


@pytest.mark.rule(16)
@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
async def test_errors_without_a_wait_leave_it_to_the_caller(status: int) -> None:
    """A15: 529 with no header; each retryable, none with a wait."""
    error = await failure(error_reply(status, ""))
    assert (error.code, error.retryable, error.retry_after) == (str(status), True, None)


@pytest.mark.parametrize(
    ("key", "hint"), [(KEY, " (check OPENAI_API_KEY)"), ("", " (no key is set; see OPENAI_API_KEY)")]
)
async def test_a_wrong_key_says_where_it_is_set(key: str, hint: str) -> None:
    """W-L2: and a missing one."""
    body = '{"error": {"message": "Incorrect API key", "code": "invalid_api_key"}}'
    async with serve_llm(error_reply(401, body)) as server:
        with pytest.raises(ProviderError) as caught:
            await ask(OpenAIProvider(server.url, key, key_name="OPENAI_API_KEY"))
    assert str(caught.value) == f"openai answered 401 (invalid_api_key): Incorrect API key{hint}"


async def test_the_server_may_forbid_a_retry() -> None:
    """Its x-should-retry header is heard."""
    assert not (await failure(error_reply(500, "", x_should_retry="false"))).retryable


@pytest.mark.parametrize("status", [301, 400, 401, 404])
async def test_a_lasting_error_is_not_retryable(status: int) -> None:
    """A17: a redirect is one too, as no other host gets the key."""
    location = {"location": "http://127.0.0.1:1/"} if status == 301 else {}
    error = await failure(error_reply(status, "{}", **location))
    assert (error.code, error.retryable) == (str(status), False)


async def test_a_gateways_page_is_bounded() -> None:
    """A17: HTML is not parsed as JSON, and what comes late in its megabytes is not read."""
    page = "<html><title>502 Bad\nGateway</title>" + "x" * 300_000
    error = await failure(error_reply(502, page))
    assert str(error) == "openai answered 502: an HTML page: 502 Bad Gateway"
    assert error.retryable
    late = "<html>" + "x" * 300_000 + "<title>late</title>"
    assert str(await failure(error_reply(502, late))) == "openai answered 502: an HTML page"


async def test_an_error_whose_body_breaks_off_is_told_by_its_status() -> None:
    """What could be read is enough."""
    head = b"HTTP/1.1 503 No\r\ncontent-length: 100\r\n\r\n"
    error = await failure(Reply((head, b"busy")))
    assert (error.code, str(error)) == ("503", "openai answered 503: busy")


@pytest.mark.rule(15)
async def test_a_conversation_too_long_is_an_error_of_its_own() -> None:
    """B12: told by the status line's body."""
    body = '{"error": {"message": "too long", "code": "context_length_exceeded"}}'
    assert isinstance(await failure(error_reply(400, body)), ContextExceeded)


async def test_nothing_tells_the_key(caplog: pytest.LogCaptureFixture) -> None:
    """Neither an error that quotes it, nor a log at its loudest, nor the error's attributes."""
    caplog.set_level(logging.DEBUG)
    quoted = json.dumps({"error": {"message": f"no such key: {KEY}", "code": KEY}})
    errors = [
        await failure(error_reply(401, quoted)),
        await failure(error_reply(401, f"Authorization: Bearer {KEY}")),
        await failure(stream_reply(f"data: {quoted}\n\n")),
        await failure(stream_reply(f"event: error\ndata: {KEY}\n\n")),
    ]
    assert KEY not in "".join(f"{error} {error!r} {vars(error)}" for error in errors) + caplog.text
