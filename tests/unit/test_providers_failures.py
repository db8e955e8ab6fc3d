"""What error answers mean: named, bounded, without secrets, and retryable only where it helps."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hango.errors import ContextExceeded
from hango.providers.failures import ErrorReply, from_body, in_band, to_error

# How servers say it.  The words are of their own error messages, or in their manner.
TOO_LONG = {
    "vLLM": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens",
    "vLLM, newer": "The decoder prompt (length 5000) is longer than the maximum model length of 4096."
    " Make sure that `max_model_len` is no smaller than the number of text tokens",
    "llama.cpp": "the request exceeds the available context size, try increasing it",
    "Anthropic": "input length and `max_tokens` exceed context limit: 199000 + 9000 > 200000",
    "Anthropic's prompt": "prompt is too long: 210000 tokens > 200000 maximum",
    "Gemini": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "Mistral": "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
    "LM Studio": "Trying to keep the first 5000 tokens when context the overflows. However, the model"
    " is loaded with context length of only 4096 tokens, which is not enough.",
    "xAI": "This model's maximum prompt length is 131072 but the request contains 150000 tokens.",
    "SGLang": "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
    "SGLang, sum": "Requested token count exceeds the model's maximum context length of 4096 tokens.",
    "Cohere": "too many tokens: total number of tokens in the prompt cannot exceed 4081",
    "Kimi": "Invalid request: Your request exceeded model token limit: 131072",
    "GLM": "Prompt exceeds max length",
    "MiniMax": "invalid params, context window exceeds limit (2013)",
    "Bedrock": "Input is too long for requested model.",
    "Bedrock, Converse": "The model returned the following errors: input is too long",
    "TGI": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000",
    "Groq": "Please reduce the length of the messages or completion.",
    "DeepSeek": "This model's maximum context length is 65536 tokens. However, you requested 70000",
    "Together": "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000",
    "OpenRouter": "This endpoint's maximum context length is 32768 tokens. However, you requested",
    "Ollama": "the input length exceeds the context length",
    "Azure": "The number of tokens in the prompt has exceeded the limit of the model",
    "Qwen": "Range of input length should be [1, 30720]",
}

KEY = "sk-test-0123456789"


def body(value: object) -> bytes:
    """Write *value* as JSON."""
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("value", "failure"),
    [
        # OpenAI
        (
            {"error": {"message": "m", "type": "invalid_request_error", "code": "model_not_found"}},
            ErrorReply("m", "model_not_found", 400),
        ),
        (
            {"error": {"message": "m", "type": "server_error", "code": None}},
            ErrorReply("m", "server_error", 400),
        ),
        # OpenRouter, Google, vLLM, Ollama, FastAPI
        ({"error": {"message": "m", "code": 400}}, ErrorReply("m", "", 400)),
        (
            [{"error": {"message": "m", "code": 400, "status": "NOT_FOUND"}}],
            ErrorReply("m", "NOT_FOUND", 400),
        ),
        (
            {"object": "error", "message": "m", "type": "BadRequestError", "code": 400},
            ErrorReply("m", "BadRequestError", 400),
        ),
        ({"error": "m"}, ErrorReply("m", "", 400)),
        ({"detail": "m"}, ErrorReply("m", "", 400)),
        ({"detail": [{"loc": ["body"]}]}, ErrorReply('[{"loc": ["body"]}]', "", 400)),
        # Anthropic behind a gateway: its outer type names nothing
        (
            {"type": "error", "error": {"type": "overloaded_error", "message": "m"}},
            ErrorReply("m", "overloaded_error", 400),
        ),
        ({"type": "error", "message": "m"}, ErrorReply("m", "", 400)),
        ("m", ErrorReply("m", "", 400)),
        ({"error": {"message": "m", "code": "odd name!<b>" + "x" * 100}}, None),
    ],
)
def test_bodies_of_every_shape_are_read(value: object, failure: ErrorReply | None) -> None:
    """A17: each server has its own idea of an error."""
    found = from_body(400, body(value))
    assert found == failure if failure else len(found.code) <= 64
    assert found.code.replace("_", "").replace(".", "").replace("-", "").isalnum() or not found.code


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (
            b"<html><head><title>502 Bad\n Gateway</title></head></html>",
            "an HTML page: 502 Bad Gateway",
        ),
        (b"  <!doctype html><h1>no title</h1>", "an HTML page"),
        (b"upstream\nis\tgone", "upstream is gone"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"", ""),
        (b"[" * 100_000, "[" * 100_000),
        (b'{"error": ' + b"[" * 900 + b"]" * 900 + b"}", None),
    ],
)
def test_bodies_that_are_not_json_are_told_in_a_line(page: bytes, said: str | None) -> None:
    """A17: a gateway's page is not taken for JSON."""
    found = from_body(502, page)
    assert found == ErrorReply(found.message if said is None else said, "", 502)


@given(st.binary(max_size=60) | st.recursive(st.none() | st.text(), st.lists).map(body))
def test_no_body_breaks_the_reader(data: bytes) -> None:
    """A17: nor does anything else; an error always has a code and a bounded message."""
    error = to_error(from_body(500, data), provider="p")
    assert error.code
    assert len(str(error)) < 1000


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529, 599])
@pytest.mark.rule(16)
def test_passing_errors_are_retryable(status: int) -> None:
    """Statuses that speak of now, not of the request."""
    assert to_error(ErrorReply("", "", status), provider="p").retryable


@pytest.mark.parametrize("status", [301, 400, 401, 402, 403, 404, 413, 422])
@pytest.mark.rule(16)
def test_lasting_errors_are_not(status: int) -> None:
    """A17: the same request would fail again."""
    assert not to_error(ErrorReply("", "", status), provider="p").retryable


@pytest.mark.parametrize(
    ("value", "retryable", "code"),
    [
        ({"error": {"type": "overloaded_error", "message": "m"}}, True, "overloaded_error"),
        ({"error": {"code": "rate_limit_exceeded"}}, True, "rate_limit_exceeded"),
        ({"error": {"type": "server_error"}}, True, "server_error"),
        ({"error": {"code": 503, "message": "m"}}, True, "503"),
        ({"error": {"status": "RESOURCE_EXHAUSTED"}}, True, "RESOURCE_EXHAUSTED"),
        ({"error": {"code": 400, "message": "m"}, "choices": []}, False, "400"),
        ({"error": {"type": "invalid_request_error"}}, False, "invalid_request_error"),
        ({"error": {"code": "tool_use_failed", "status_code": 400}}, False, "tool_use_failed"),
        ({"error": "m"}, False, "provider_error"),
        ({"error": True}, False, "provider_error"),
        ({"object": "error", "message": "m", "code": 500}, True, "500"),
    ],
)
def test_errors_inside_a_stream_are_judged_by_their_name(
    value: dict[str, object], *, retryable: bool, code: str
) -> None:
    """A13, A17: a stream that began well has no status left to go by."""
    failure = in_band(value)
    assert failure is not None
    error = to_error(failure, provider="p")
    assert (error.retryable, error.code) == (retryable, code)


@pytest.mark.parametrize(
    "value", [{}, {"error": None}, {"error": {}}, {"choices": []}, {"object": "x"}]
)
def test_no_error_is_no_failure(value: dict[str, object]) -> None:
    """A16: an empty error field is none."""
    assert in_band(value) is None


def test_no_wait_helps_an_empty_account() -> None:
    """A17: a quota used up comes as 429 and is not a rate limit."""
    assert not to_error(ErrorReply("m", "insufficient_quota", 429), provider="p").retryable


def test_the_server_may_say_whether_to_retry() -> None:
    """Its word overrules its status; nonsense does not."""
    for status, word, retryable in [(500, "false", False), (400, "True", True), (500, "maybe", True)]:
        error = to_error(ErrorReply("", "", status), provider="p", should_retry=word)
        assert error.retryable is retryable


@pytest.mark.parametrize(
    "failure",
    [
        ErrorReply("m", "context_length_exceeded", 400),
        ErrorReply("This model's maximum context length is 8192 tokens.", "BadRequestError", 400),
        ErrorReply(
            "request (9 tokens) exceeds the available context size", "exceed_context_size_error", 500
        ),
        ErrorReply("prompt is too long: 9 tokens > 8 maximum", "invalid_request_error", 400),
        ErrorReply("Your input exceeds the context window of this model.", "", 0),
        *[
            pytest.param(ErrorReply(said, "invalid_request_error", 400), id=f"N13: {server}")
            for server, said in TOO_LONG.items()
        ],
        ErrorReply("Payload too large", "", 413),
        ErrorReply("", "", 413),
    ],
)
@pytest.mark.rule(15)
def test_a_conversation_too_long_is_an_error_of_its_own(failure: ErrorReply) -> None:
    """B12: by code or by sentence, whatever the status."""
    error = to_error(failure, provider="p")
    assert isinstance(error, ContextExceeded)
    assert not error.retryable


@pytest.mark.parametrize(
    "reply",
    [
        ErrorReply("Input exceeds the context window's rate", "rate_limit_exceeded", 429),
        ErrorReply("Request is too large: limit 6000 tokens per minute, requested 9000", "x", 400),
        ErrorReply("Too many tokens per day, please wait", "ThrottlingException", 400),
        ErrorReply("max_tokens is too large: 99999", "invalid_request_error", 400),
        ErrorReply("Invalid 'messages[0].name': string too long", "string_too_long", 400),
        ErrorReply("Too many tools: 200, at most 128", "invalid_request_error", 400),
        ErrorReply("The context of the call is missing", "", 400),
    ],
)
def test_other_limits_are_not_a_conversation_too_long(reply: ErrorReply) -> None:
    """N13: limits of a rate, of a field or of the answer speak of similar things."""
    assert not isinstance(to_error(reply, provider="p"), ContextExceeded)


def test_the_key_is_in_no_error() -> None:
    """Servers quote it in their errors; cut, in a code or in the form of a header it is struck out."""
    said = f"Incorrect API key provided: {KEY}. Header was Authorization: Bearer {KEY}x" + "y" * 2000
    error = to_error(ErrorReply(said, f"bad_{KEY}", 401), provider="p", secret=KEY)
    assert KEY not in str(error) + error.code
    assert "Incorrect API key provided: [key]. Header" in str(error)
    assert len(str(error).encode()) < 1000


@pytest.mark.parametrize(
    ("key", "said", "shown"),
    [
        ("k", "Token limit reached: take k tokens", "Token limit reached: take [key] tokens"),
        ("ollama", "pull it with 'ollama', or ollama-get", "pull it with '[key]', or ollama-get"),
        (KEY, f"Incorrect API key provided: {KEY[:13]}***.", "Incorrect API key provided: [key]"),
        (KEY, f"{KEY[:7]} is no key", f"{KEY[:7]} is no key"),
        ("organization-key-12345", "organization-wide limit", "organization-wide limit"),
        ("", "Bearer another-key-of-mine", "Bearer [redacted]"),
        (
            "",
            "org secret=abc123, db://u:p@10.0.0.5/x",
            "org secret=[redacted], db://[redacted]@10.0.0.5/x",
        ),
        ("", "jwt eyJhbGciOiJI.eyJzdWIiOiIx.c2ln expired", "jwt [redacted] expired"),
    ],
)
def test_only_what_is_a_key_is_struck_out(key: str, said: str, shown: str) -> None:
    """S-L5: no short key in the middle of a word, and what looks like a key of others neither."""
    error = to_error(ErrorReply(said, "", 401), provider="p", secret=key)
    assert str(error) == f"p answered 401: {shown}"


def test_a_page_of_unclosed_titles_is_read_at_once() -> None:
    """S-H3: no expression that backtracks reads what a server sends."""
    page = b"<html>" + b"<title>" * 200_000
    assert from_body(502, page).message.startswith("an HTML page")
