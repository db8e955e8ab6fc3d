"""Streams of several tool calls: how servers tell which fragment belongs to which.

Its one rule: data only.  A row says where it was seen; a new dialect is a new row.
"""

from __future__ import annotations

from conformance.chat.rows import (
    ASKS,
    BERLIN,
    BERLIN_TEXT,
    TOKYO,
    TOKYO_TEXT,
    TWO,
    Whole,
    calls,
    head,
    kept,
    use,
)

from hango.domain import TextBlock

from support.llm_server import delta, finish, sse


def _pieces(arguments: str) -> tuple[str, str]:
    return arguments[:9], arguments[9:]


PLACES = (
    Whole(
        "Gemini: no index, one call a chunk, signatures to send back, finish stop",
        sse(
            calls(
                head(
                    "get_time", TOKYO_TEXT, id="a", extra_content={"google": {"thought_signature": "S"}}
                )
            ),
            calls(head("get_time", BERLIN_TEXT, id="b")),
            finish("stop"),
        ),
        (*TWO, kept(calls={"a": {"extra_content": {"google": {"thought_signature": "S"}}}})),
        ASKS,
    ),
    Whole(
        "Gemini converters: every index 0, ids differ",
        sse(
            calls(head("get_time", TOKYO_TEXT, index=0, id="a")),
            calls(head("get_time", BERLIN_TEXT, index=0, id="b")),
            finish("tool_calls"),
        ),
        TWO,
        ASKS,
    ),
    Whole(
        "every index 0, ids differ, no arguments",
        sse(
            calls(head("now", "", index=0, id="a")),
            calls(head("now", "", index=0, id="b")),
            finish("tool_calls"),
        ),
        (use("now", {}, "a"), use("now", {}, "b")),
        ASKS,
    ),
    Whole(
        "every index 0, ids differ, fragments follow their head",
        sse(
            calls(head("get_time", '{"timezone":', index=0, id="a")),
            calls(head(None, '"Asia/Tokyo"}', index=0)),
            calls(head("get_time", '{"timezone":', index=0, id="b")),
            calls(head(None, '"Europe/Berlin"}', index=0, id="")),
            finish("tool_calls"),
        ),
        TWO,
        ASKS,
    ),
    Whole(
        "P9: every index 0, ids differ, fragments of both in turns",
        sse(
            *(
                calls(head(name, piece, index=0, id=call_id))
                for pieces in zip(_pieces(TOKYO_TEXT), _pieces(BERLIN_TEXT), strict=True)
                for call_id, piece in zip("ab", pieces, strict=True)
                for name in ["get_time" if piece[0] == "{" else None]
            ),
            finish("tool_calls"),
        ),
        TWO,
        ASKS,
    ),
    Whole(
        "P9: the name in pieces",
        sse(
            calls(head("get", "", index=0, id="a"), head("get_t", index=1, id="b")),
            calls(head("_", "", index=0), head("ime", BERLIN_TEXT, index=1, id="b")),
            calls(head("time", TOKYO_TEXT, index=0, id="")),
            calls(head("get_ti", index=2, id="c")),
            finish("tool_calls"),
        ),
        (*TWO, use("get_ti", {}, "c")),
        ASKS,
    ),
    Whole(
        "stubllm with its default id: every index 0, one id for all",
        sse(
            calls(head("get_time", TOKYO_TEXT, index=0, id="a")),
            calls(head("get_time", BERLIN_TEXT, index=0, id="a")),
        ),
        (use("get_time", TOKYO, "a"), use("get_time", BERLIN, "a_2")),
        ASKS,
    ),
    Whole(
        "one id for all calls, indexes differ",
        sse(
            calls(
                head("get_time", TOKYO_TEXT, index=0, id="a"),
                head("get_time", BERLIN_TEXT, index=1, id="a"),
            ),
            finish("tool_calls"),
        ),
        (use("get_time", TOKYO, "a"), use("get_time", BERLIN, "a_2")),
        ASKS,
    ),
    Whole(
        "Ollama; A10: id empty, null or missing",
        sse(
            calls(head("get_time", TOKYO_TEXT, index=0, id="")),
            calls(head("get_time", BERLIN_TEXT, index=1, id=None)),
            calls(head("now", "{}", index=2)),
            finish("tool_calls"),
        ),
        (
            use("get_time", TOKYO, "call_3_0"),
            use("get_time", BERLIN, "call_3_1"),
            use("now", {}, "call_3_2"),
        ),
        ASKS,
    ),
    Whole(
        "A10: neither index nor id, whole calls",
        sse(
            calls(head("get_time", TOKYO_TEXT), head("get_time", BERLIN_TEXT)),
            calls(head("now", None)),
            calls(head("then", "{}")),
            finish("tool_calls"),
        ),
        (
            use("get_time", TOKYO, "call_3_0"),
            use("get_time", BERLIN, "call_3_1"),
            use("now", {}, "call_3_2"),
            use("then", {}, "call_3_3"),
        ),
        ASKS,
    ),
    Whole(
        "P1: Kimi's ids, which other APIs do not take, and one too long to be believed",
        sse(
            calls(head("get_time", TOKYO_TEXT, index=0, id="functions.get_time:0")),
            calls(head("get_time", BERLIN_TEXT, index=1, id="x" * 300)),
            finish("tool_calls"),
        ),
        (
            use("get_time", TOKYO, "functions_get_time_0"),
            use("get_time", BERLIN, "x" * 58),
            kept(calls={"functions_get_time_0": {"id": "functions.get_time:0"}}),
        ),
        ASKS,
    ),
    Whole(
        "an id that an earlier turn of the conversation has (llama.cpp counts anew in every answer)",
        sse(calls(head("get_time", TOKYO_TEXT, index=0, id="earlier")), finish("tool_calls")),
        (use("get_time", TOKYO, "earlier_2"),),
        ASKS,
    ),
    Whole(
        "A09: no index, fragments without an id go on with the last call",
        sse(
            calls(head("get_time", '{"timezone":', id="a")),
            calls(head(None, '"Asia/Tokyo"}')),
            calls(head("get_time", "", id="b")),
            calls(head(None, '{"timezone":"Eur')),
            calls(head(None, 'ope/Berlin"}')),
            finish("tool_calls"),
        ),
        TWO,
        ASKS,
    ),
    Whole(
        "A09: some fragments have an index and some have none",
        sse(
            calls(head("get_time", '{"timezone":', index=0, id="a")),
            calls(head(None, '"Asia/Tokyo"}')),
            calls(head("get_time", '{"timezone":', id="b")),
            calls(head(None, '"Europe/Berlin"', index=None)),
            calls(head(None, "}", id="b")),
            finish("tool_calls"),
        ),
        TWO,
        ASKS,
    ),
    Whole(
        "id, name and type repeated on every fragment",
        sse(
            *(
                calls(head("get_time", piece, index=0, id="a"))
                for piece in ('{"timezone"', ': "Asia/Tokyo"', "}", "")
            ),
            *(
                calls(head("get_time", piece, id="b"))
                for piece in ('{"timezone"', ': "Europe/Berlin"', "}", "")
            ),
            finish("tool_calls"),
        ),
        TWO,
        ASKS,
    ),
    Whole(
        "Anthropic behind a gateway: the index starts at 1",
        sse(
            delta(content="Let me look."),
            calls(head("get_time", "", index=1, id="a")),
            calls(head(None, TOKYO_TEXT, index=1)),
            finish("tool_calls"),
        ),
        (TextBlock("Let me look."), use("get_time", TOKYO, "a")),
        ASKS,
    ),
    Whole(
        "an index that is none",
        sse(
            calls(head("get_time", TOKYO_TEXT, index="0", id="a")),
            calls(head("get_time", BERLIN_TEXT, index=-1, id="b")),
            calls(head("now", "{}", index=10**9, id="c")),
            finish("tool_calls"),
        ),
        (*TWO, use("now", {}, "c")),
        ASKS,
    ),
)
