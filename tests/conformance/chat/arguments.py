"""Streams of tool calls: how their names and arguments come.

Its one rule: data only.  A row says where it was seen; a new dialect is a new row.
"""

from __future__ import annotations

from conformance.chat.rows import (
    ASK,
    ASKS,
    BERLIN_TEXT,
    ONE,
    TOKYO,
    TOKYO_TEXT,
    TWO,
    Whole,
    calls,
    event_error,
    head,
    kept,
    nested,
    use,
)

from hango.domain import TextBlock, ToolUseBlock, Usage

from support.llm_server import delta, finish, sse

GENERATION = '<function=get_time{"timezone": "Asia/Tokyo"</function>'
REJECTED = {
    "error": {
        "message": "Failed to call a function.",
        "type": "invalid_request_error",
        "code": "tool_use_failed",
        "failed_generation": GENERATION,
    }
}
REJECTED_TEXT = f"tool_use_failed: {GENERATION}"

ARGUMENTS = (
    Whole(
        "OpenAI; A04: arguments cut inside a key, an escape and a pair of escapes",
        sse(
            calls(head("get_time", "", index=0, id="a", type="function")),
            *(
                calls(head(None, piece, index=0))
                for piece in (
                    '{"ti',
                    "mezone",
                    '"',
                    ': "',
                    "caf",
                    "\\u00",
                    "e9 \\ud83c",
                    "\\udf0d",
                    '"}',
                )
            ),
            finish("tool_calls"),
        ),
        (use("get_time", {"timezone": "café 🌍"}, "a"),),
        ASKS,
    ),
    Whole(
        "OpenAI; A07: fragments of two calls in turns, the heads in either order",
        sse(
            calls(head("get_time", "", index=1, id="b")),
            calls(head("get_time", "", index=0, id="a")),
            *(
                calls(head(None, tokyo, index=0), head(None, berlin, index=1))
                for tokyo, berlin in (
                    ('{"timezone"', '{"timezone'),
                    (': "Asia/', '": "Europe/Be'),
                    ('Tokyo"}', 'rlin"}'),
                )
            ),
            finish("tool_calls"),
        ),
        TWO,
        ASKS,
    ),
    Whole(
        "Ollama, llama.cpp: arguments as an object; an empty one says nothing yet",
        sse(
            calls(head("get_time", TOKYO, index=0, id="a")),
            calls(head("get_time", {}, index=1, id="b")),
            calls(head(None, BERLIN_TEXT, index=1)),
            finish("tool_calls"),
        ),
        TWO,
        ASKS,
    ),
    Whole(
        "A05, P4: no arguments, in every way to say so; Cohere writes null",
        sse(
            calls(head("one", None, index=0, id="a")),
            calls(head("two", "", index=1, id="b")),
            calls({"index": 2, "id": "c", "function": {"name": "three", "arguments": None}}),
            calls(head("four", {}, index=3, id="d")),
            calls(head("five", "{}", index=4, id="e")),
            calls(head("six", " ", index=5, id="f")),
            calls(head("seven", "nu", index=6, id="g"), head(None, "ll ", index=6)),
            finish("tool_calls"),
        ),
        tuple(
            use(name, {}, call_id)
            for name, call_id in zip(
                ("one", "two", "three", "four", "five", "six", "seven"), "abcdefg", strict=True
            )
        ),
        ASKS,
    ),
    Whole(
        "the name after the arguments; elements that are nothing",
        sse(
            calls({}, head(None, "", index=7)),
            calls(head(None, '{"timezone": ', index=0, id="a")),
            calls(head("get_time", '"Asia/Tokyo"}', index=0)),
            delta(tool_calls=[None, "x", {"index": 9, "function": "x"}]),
            finish("tool_calls"),
        ),
        (use("get_time", TOKYO, "a"),),
        ASKS,
    ),
    Whole(
        "C11: a call that never gets a name is answered like an unknown tool",
        sse(calls(head(None, "{}", index=0, id="a")), finish("tool_calls")),
        (use("", {}, "a"),),
        ASKS,
    ),
    Whole(
        "C05, C04: arguments that are no object stay what they are",
        sse(
            calls(head("get_time", '{"timezone": ', index=0, id="a")),
            calls(head("get_time", ["Asia/Tokyo"], index=1, id="b")),
            finish("tool_calls"),
        ),
        (
            ToolUseBlock("a", "get_time", raw_input='{"timezone": '),
            ToolUseBlock("b", "get_time", raw_input='["Asia/Tokyo"]'),
        ),
        ASKS,
    ),
    Whole(
        "P3: Groq could not parse the call; the model is answered and may correct it",
        sse(
            delta(content="Hi"),
            {**REJECTED, "x_groq": {"usage": {"prompt_tokens": 7, "completion_tokens": 3}}},
            done=False,
        ),
        (TextBlock("Hi"), ToolUseBlock("call_3_0", "get_time", raw_input=REJECTED_TEXT)),
        ASKS,
        Usage(7, 3),
    ),
    Whole(
        "P3: the same as an event of its own, after a whole call",
        sse(ASK, done=False) + event_error(REJECTED),
        (*ONE, ToolUseBlock("call_3_1", "get_time", raw_input=REJECTED_TEXT)),
        ASKS,
    ),
    Whole(
        "P3: nothing that the model wrote is shown",
        event_error({"error": {"code": "tool_use_failed", "status_code": 400}}),
        (ToolUseBlock("call_3_0", "", raw_input="tool_use_failed: "),),
        ASKS,
    ),
    Whole(
        "A01: arguments that end in half a pair of surrogates",
        sse(calls(head("f", '{"x": "\ud83c', index=0, id="a")), finish("tool_calls")),
        (ToolUseBlock("a", "f", raw_input='{"x": "\ufffd'),),
        ASKS,
    ),
    Whole(
        "NaN in what is to be sent back",
        sse(
            calls(head("f", "{}", index=0, id="a", extra_content={"score": float("nan"), "s": "S"})),
            finish("tool_calls"),
        ),
        (use("f", {}, "a"), kept(calls={"a": {"extra_content": {"score": None, "s": "S"}}})),
        ASKS,
    ),
    Whole(
        "what calls were before 2024",
        sse(
            delta(function_call={"name": "get_time", "arguments": ""}),
            delta(function_call={"arguments": TOKYO_TEXT}),
            finish("function_call"),
        ),
        (use("get_time", TOKYO, "call_3_0"),),
        ASKS,
    ),
    Whole(
        "a server that ignores stream, with a call",
        '{"choices": [{"index": 0, "message": {"content": null, "tool_calls": [{"id": "a", "function":'
        ' {"name": "get_time", "arguments": "{\\"timezone\\": \\"Asia/Tokyo\\"}"}}]},'
        ' "finish_reason": "tool_calls"}]}',
        (use("get_time", TOKYO, "a"),),
        ASKS,
    ),
    Whole(
        "what is to be sent back is nested too deep to be kept",
        sse(
            calls(head("get_time", TOKYO_TEXT, index=0, id="a", extra_content=nested(58))),
            finish("tool_calls"),
        ),
        (use("get_time", TOKYO, "a"),),
        ASKS,
    ),
)
