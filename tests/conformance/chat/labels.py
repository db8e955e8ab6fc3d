"""Answers by how they end: what the label says, and what it is worth.

Its one rule: data only.  A row says where it was seen; a new dialect is a new row.
"""

from __future__ import annotations

from conformance.chat.rows import ASK, ASKS, CUT, END, ONE, REFUSED, Whole, labelled

from hango.domain import StopReason, TextBlock

from support.llm_server import delta, finish, sse

LABELS = (
    *(
        Whole(f"B06: calls and finish_reason {label!r}", labelled(label, ASK), ONE, ASKS)
        for label in (
            "stop",
            "tool_calls",
            "tool_call",
            "function_call",
            "other",
            "brand_new",
            "",
            None,
            "eos",
            "STOP",
        )
    ),
    *(
        Whole(f"{seen} with calls: none of them runs", labelled(label, ASK), ONE, stop)
        for label, seen, stop in (
            ("length", "a cut answer", CUT),
            ("max_tokens", "a cut answer", CUT),
            ("content_filter", "a filtered answer", REFUSED),
        )
    ),
    *(
        Whole(
            f"text and finish_reason {label!r}",
            labelled(label, delta(content="Hi")),
            (TextBlock("Hi"),),
            stop,
        )
        for label, stop in (
            ("stop", END),
            ("eos", END),
            ("STOP", END),
            ("end_turn", END),
            ("length", CUT),
            ("model_length", CUT),
            ("content_filter", REFUSED),
            ("stop_sequence", StopReason.STOP_SEQUENCE),
            ("pause_turn", StopReason.PAUSE_TURN),
            ("model_context_window_exceeded", StopReason.CONTEXT_EXCEEDED),
        )
    ),
    Whole("B07: finish_reason tool_calls and no call", labelled("tool_calls"), (), ASKS),
    Whole(
        "a label repeated, then softened: a cut answer stays cut",
        sse(delta(content="Hi"), finish("length"), finish("length"), finish("stop")),
        (TextBlock("Hi"),),
        CUT,
    ),
    Whole(
        "OpenAI: a refusal in a field of its own",
        sse(delta(refusal="I can"), delta(refusal="not."), finish("stop")),
        (TextBlock("I cannot."),),
        REFUSED,
    ),
)
