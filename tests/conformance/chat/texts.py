"""Streams of text, as servers that speak Chat Completions send them, and what each means.

Its one rule: data only.  A row says where it was seen; a new dialect is a new row.
"""

from __future__ import annotations

from conformance.chat.rows import Whole, usage

from hango.domain import TextBlock, Usage

from support.llm_server import delta, finish, sse

TEXT = (
    Whole(
        "OpenAI; A11: a prelude and a usage without choices, null and empty deltas",
        sse(
            {"choices": [], "prompt_filter_results": []},
            delta(role="assistant", content=""),
            {"choices": [{"index": 0, "delta": None}]},
            delta(),
            delta(content="Hello"),
            delta(content=" there", tool_calls=None, refusal=None),
            finish("stop"),
            {
                "choices": [],
                **usage(
                    9,
                    5,
                    prompt_tokens_details={"cached_tokens": 4, "cache_write_tokens": 2},
                    completion_tokens_details={"reasoning_tokens": 3},
                ),
            },
        ),
        (TextBlock("Hello there"),),
        usage=Usage(9, 5, 4, 2, 3),
    ),
    Whole(
        "OpenRouter: seventeen comments before the first chunk, usage beside choices",
        ": OPENROUTER PROCESSING\n\n" * 17
        + sse(
            delta(content="Hi"), {**finish("stop"), **usage(3, 1)}, {**finish("stop"), **usage(3, 1)}
        ),
        (TextBlock("Hi"),),
        usage=Usage(3, 1),
    ),
    Whole(
        "vLLM with continuous usage; A12: cumulative, so the last counts; null and odd counts are none",
        sse(
            {**delta(content="H"), **usage(7, 1)},
            {**delta(content="i"), **usage(7, 2)},
            {**finish("stop"), "usage": None},
            {"choices": [], **usage(7, 2, prompt_tokens_details=None, completion_tokens_details=[])},
        ),
        (TextBlock("Hi"),),
        usage=Usage(7, 2),
    ),
    Whole(
        "usage that is no usage",
        sse(
            delta(content="Hi"),
            finish("stop"),
            {"choices": [], "usage": {"prompt_tokens": "9", "completion_tokens": -1}},
            {"usage": []},
            {"usage": {"prompt_tokens": True, "completion_tokens": 10**400}},
        ),
        (TextBlock("Hi"),),
    ),
    Whole(
        "Groq and DeepSeek: usage and cached tokens under names of their own",
        sse(delta(content="Hi"), {**finish("stop"), "x_groq": usage(5, 1, prompt_cache_hit_tokens=4)}),
        (TextBlock("Hi"),),
        usage=Usage(5, 1, 4),
    ),
    Whole(
        "Snowflake, stubllm: no finish_reason at all, but [DONE]",
        sse({"id": "", "created": 0, **delta(content="Hi", tool_calls=[])}),
        (TextBlock("Hi"),),
    ),
    Whole(
        "A14: a finish_reason, then the connection ends without [DONE]",
        sse(delta(content="Hi"), finish("stop"), done=False),
        (TextBlock("Hi"),),
    ),
    Whole(
        "a server that forgets the last line end",
        sse(delta(content="Hi"), finish("stop"), done=False) + "data: [DONE]",
        (TextBlock("Hi"),),
    ),
    Whole(
        "A16: pings, unknown events, unknown fields, what is not an object, a second end",
        "event: ping\ndata: {}\n\ndata:\n\ndata: null\n\ndata: 5\n\n"
        + sse(
            {"type": "brand.new", "choices": "none"},
            {"choices": [None, 5, {"index": 0}, {"index": 0, "delta": "x", "finish_reason": 3}]},
            delta(content="Hi", audio={"id": 1}, annotations=[]),
            {"obfuscation": "x", "service_tier": "default", **finish("stop")},
        )
        + sse(delta(content=" and more"), finish("stop")),
        (TextBlock("Hi"),),
    ),
    Whole(
        "n > 1: only the first choice is the answer",
        sse(
            delta(content="Hi"), {"choices": [{"index": 1, "delta": {"content": "No"}}]}, finish("stop")
        ),
        (TextBlock("Hi"),),
    ),
    Whole(
        "a server that ignores stream: a whole completion as one document",
        '\n{"choices": [{"message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],'
        ' "usage": {"prompt_tokens": 2, "completion_tokens": 1}}\n',
        (TextBlock("Hi"),),
        usage=Usage(2, 1),
    ),
    Whole(
        "A01: a pair of surrogates whose halves come in two deltas, a half alone, a NUL",
        sse(
            delta(content="a\ud83c"),
            delta(content="\udf0d b\udc00"),
            delta(content="\0\ud83c"),
            finish("stop"),
        ),
        (TextBlock("a🌍 b\ufffd\ufffd\ufffd"),),
    ),
    Whole(
        "NaN where JSON has none",
        'data: {"x": NaN}\n\n' + sse(delta(content="Hi"), finish("stop")),
        (TextBlock("Hi"),),
    ),
    Whole("B08: an answer of nothing", sse(delta(role="assistant", content=""), finish("stop")), ()),
)
