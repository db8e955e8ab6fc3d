"""Streams with reasoning, and what of it the servers want back.

Its one rule: data only.  A row says where it was seen; a new dialect is a new row.
"""

from __future__ import annotations

from conformance.chat.rows import Whole, kept

from hango.domain import TextBlock, ThinkingBlock

from support.llm_server import delta, finish, sse

THOUGHT = (
    Whole(
        "DeepSeek, Z.ai: reasoning_content, which they want back",
        sse(
            delta(reasoning_content="Let me", content=None),
            delta(reasoning_content=" see."),
            delta(content="Hi", reasoning_content=None),
            finish("stop"),
        ),
        (
            ThinkingBlock("Let me see."),
            TextBlock("Hi"),
            kept(message={"reasoning_content": "Let me see."}),
        ),
    ),
    Whole(
        "DeepSeek with nothing to think: the empty field is wanted back too",
        sse(delta(content="Hi", reasoning_content=""), finish("stop")),
        (TextBlock("Hi"), kept(message={"reasoning_content": ""})),
    ),
    Whole(
        "Groq, vLLM: reasoning, with a channel; a gateway that sends it twice",
        sse(
            delta(reasoning="Hm", channel="analysis"),
            delta(reasoning="m", reasoning_content="m"),
            delta(content="Hi"),
            finish("stop"),
        ),
        (ThinkingBlock("Hmm"), TextBlock("Hi"), kept(message={"reasoning_content": "m"})),
    ),
    Whole(
        "P5: Ollama, Groq, Cerebras: reasoning alone, which goes back by that name",
        sse(delta(reasoning="Let me"), delta(reasoning=" see.", content="Hi"), finish("stop")),
        (ThinkingBlock("Let me see."), TextBlock("Hi"), kept(message={"reasoning": "Let me see."})),
    ),
    Whole(
        "OpenRouter: reasoning_details in fragments, beside the same text; wanted back as whole blocks",
        sse(
            delta(
                reasoning="Let",
                reasoning_details=[{"type": "reasoning.text", "text": "Let", "index": 0}],
            ),
            delta(
                reasoning="'s", reasoning_details=[{"type": "reasoning.text", "text": "'s", "index": 0}]
            ),
            delta(reasoning_details=[{"type": "reasoning.text", "signature": "S1", "index": 0}]),
            delta(reasoning_details=[{"type": "reasoning.text", "text": "!", "index": 0}]),
            delta(reasoning_details=[{"type": "reasoning.encrypted", "data": "E1", "index": 1}]),
            delta(reasoning_details=[{"type": "reasoning.encrypted", "data": "E2", "index": 1}]),
            finish("stop"),
        ),
        (
            ThinkingBlock("Let's!"),
            kept(
                message={
                    "reasoning_details": [
                        {"type": "reasoning.text", "text": "Let's", "index": 0, "signature": "S1"},
                        {"type": "reasoning.text", "text": "!", "index": 0},
                        {"type": "reasoning.encrypted", "data": "E1", "index": 1},
                        {"type": "reasoning.encrypted", "data": "E2", "index": 1},
                    ]
                }
            ),
        ),
    ),
    Whole(
        "Snowflake: reasoning_details alone",
        sse(
            delta(reasoning_details=[{"type": "reasoning.summary", "summary": "Sum"}, "odd"]),
            delta(reasoning_details=[{"type": "reasoning.summary", "summary": "med"}]),
            finish("stop"),
        ),
        (
            ThinkingBlock("Summed"),
            kept(message={"reasoning_details": [{"type": "reasoning.summary", "summary": "Summed"}]}),
        ),
    ),
    Whole(
        "Mistral: content as a list of parts",
        sse(
            delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}]),
            delta(
                content=[{"type": "text", "text": "Hi"}, {"type": "reference", "reference_ids": [1]}]
            ),
            finish("stop"),
        ),
        (ThinkingBlock("Hm"), TextBlock("Hi")),
    ),
)
