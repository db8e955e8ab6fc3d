"""Streams that are no whole answer: cut off, or with an error in them.

Its one rule: data only.  A row says where it was seen; a new dialect is a new row.
"""

from __future__ import annotations

from conformance.chat.rows import ASK, TOKYO_TEXT, Failed, calls, event_error, head, labelled, usage

from hango.domain import TextBlock, ToolUseBlock, Usage

from support.llm_server import delta, finish, sse

_HI = sse(delta(content="Hi"), done=False)
_HI_BLOCK = (TextBlock("Hi"),)
_BROKEN = "ProviderStreamBroken"

FAILED = (
    Failed("A14: nothing at all", "", _BROKEN, "truncated", True),
    Failed("A14: [DONE] and nothing else", sse(), _BROKEN, "truncated", True),
    Failed("A14: the end in the middle of a text", _HI, _BROKEN, "truncated", True, _HI_BLOCK),
    Failed(
        "A14: the end in the middle of arguments",
        sse(calls(head("get_time", '{"timezone"', index=0, id="a")), done=False),
        _BROKEN,
        "truncated",
        True,
        (ToolUseBlock("a", "get_time", raw_input='{"timezone"'),),
    ),
    Failed(
        "A14: the end after a whole call, before any label",
        sse(ASK, done=False),
        _BROKEN,
        "truncated",
        True,
        (ToolUseBlock("a", "get_time", raw_input=TOKYO_TEXT),),
    ),
    Failed(
        "A14: the end inside an event",
        _HI + 'data: {"choi',
        _BROKEN,
        "malformed_event",
        True,
        _HI_BLOCK,
    ),
    Failed("an event that is not JSON", "data: {oops}\n\n", _BROKEN, "malformed_event", True),
    Failed(
        "an event nested without end", f"data: {'[' * 100_000}\n\n", _BROKEN, "malformed_event", True
    ),
    Failed("a document that is not JSON", '{"choices": [', _BROKEN, "malformed_event", True),
    Failed(
        "A17: a gateway's page, with status 200",
        "<html><title>Welcome</title></html>",
        "ProviderError",
        "not_a_stream",
    ),
    Failed(
        "W-L2: JSON of something that is no model, with status 200",
        '{"status": "ok", "version": "1.2"}',
        "ProviderError",
        "not_a_stream",
    ),
    Failed(
        "W-L2: a document that is a part of an answer",
        '{"choices": [{"index": 0, "message": {"content": "Hi"}}]}',
        _BROKEN,
        "truncated",
        True,
        _HI_BLOCK,
    ),
    Failed(
        "A13: an error inside the stream, after content",
        _HI + sse({"error": {"type": "server_error", "message": "boom"}}, done=False),
        "ProviderError",
        "server_error",
        True,
        _HI_BLOCK,
    ),
    Failed(
        "A13, A17: an error inside the stream, before any content",
        sse({"error": {"type": "invalid_request_error", "code": "bad_tool", "message": "no"}}),
        "ProviderError",
        "bad_tool",
    ),
    Failed(
        "OpenRouter: an error beside choices and usage, after finish_reason length, then [DONE]",
        _HI
        + sse(
            finish("length"),
            {"error": {"code": 400, "message": "no"}, **finish("error"), **usage(1, 1)},
        ),
        "ProviderError",
        "400",
        False,
        _HI_BLOCK,
        Usage(1, 1),
    ),
    Failed(
        "Groq: event error, then the end; its usage counts",
        _HI + event_error({"error": {"code": "bad", "status_code": 400}, **usage(4, 2)}),
        "ProviderError",
        "bad",
        False,
        _HI_BLOCK,
        Usage(4, 2),
    ),
    Failed(
        "P3: llama.cpp: a field error",
        'error: {"code":400,"message":"the request exceeds the available context size, try'
        ' increasing it","type":"exceed_context_size_error"}\n\n',
        "ContextExceeded",
        "exceed_context_size_error",
    ),
    Failed(
        "an error event that is not JSON",
        "event: error\ndata: oops\n\n",
        "ProviderError",
        "provider_error",
    ),
    Failed(
        "vLLM: an error without a field error",
        sse({"object": "error", "message": "no", "type": "InternalServerError", "code": 500}),
        "ProviderError",
        "InternalServerError",
        True,
    ),
    Failed(
        "Ollama: an error that is a text",
        sse({"error": "no such model"}),
        "ProviderError",
        "provider_error",
    ),
    Failed(
        "B12: a conversation too long, told inside the stream",
        sse({"error": {"code": "context_length_exceeded", "message": "too long"}}),
        "ContextExceeded",
        "context_length_exceeded",
    ),
    Failed(
        "B12: a stop reason nobody knows",
        sse(delta(content="Hi"), finish("brand_new_reason")),
        "UnsupportedStop",
        "brand_new_reason",
        False,
        _HI_BLOCK,
    ),
    Failed(
        "B12: a stop reason nobody knows, and a call that is not whole",
        sse(calls(head("get_time", '{"timezone"', index=0, id="a")), finish("brand_new_reason")),
        "UnsupportedStop",
        "brand_new_reason",
        False,
        (ToolUseBlock("a", "get_time", raw_input='{"timezone"'),),
    ),
    Failed(
        "OpenRouter, Mistral: finish_reason error, with calls",
        labelled("error", ASK),
        "ProviderError",
        "error",
        False,
        (ToolUseBlock("a", "get_time", raw_input=TOKYO_TEXT),),
    ),
    Failed(
        "DeepSeek: no room for the answer",
        labelled("insufficient_system_resource", delta(content="Hi")),
        "ProviderError",
        "insufficient_system_resource",
        True,
        _HI_BLOCK,
    ),
)
