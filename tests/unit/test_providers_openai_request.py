"""What is posted to a Chat Completions server."""

from __future__ import annotations

import json
from typing import cast

import attrs
import pytest

from hango.domain import (
    Block,
    Effects,
    JsonObject,
    ModelOptions,
    OpaqueBlock,
    PromptMessage,
    ProviderRequest,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolDefinition,
    ToolResultBlock,
    ToolUseBlock,
)
from hango.errors import InvalidInput, RegistrationError
from hango.providers.openai.request import build_request
from hango.tools import Tool

SIGNATURE = {"google": {"thought_signature": "S"}}


def user(*blocks: Block) -> PromptMessage:
    """Write a user's message."""
    return PromptMessage("user", blocks)


def model(*blocks: Block) -> PromptMessage:
    """Write a model's message."""
    return PromptMessage("assistant", blocks)


def body(*messages: PromptMessage, system: str = "", **more: object) -> dict[str, object]:
    """Build a request and read it as a server does."""
    tools = cast("tuple[ToolDefinition, ...]", more.get("tools", ()))
    request = ProviderRequest(
        "m", system, messages, tools, 1, cast("int | None", more.get("max_tokens"))
    )
    data = build_request(request, provider="openai", max_tokens_field="max_tokens")
    return cast("dict[str, object]", json.loads(data))


def sent(*messages: PromptMessage) -> list[JsonObject]:
    """Build a request and return its messages."""
    return cast("list[JsonObject]", body(*messages)["messages"])


def test_a_conversation_with_tools_is_told_in_full() -> None:
    """System, calls beside text, one message for each result, and then what the user added."""
    tool = ToolDefinition("get_time", "Tell the time.", {"type": "object", "properties": {}})
    asked = body(
        user(TextBlock("hi")),
        model(TextBlock("let me see"), ToolUseBlock("a", "f", {"x": 1}), ToolUseBlock("b", "g")),
        user(ToolResultBlock("a", "one"), ToolResultBlock("b", "two", is_error=True), TextBlock("so?")),
        system="be brief",
        tools=(tool,),
        max_tokens=7,
    )
    assert asked == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": "let me see",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
                    {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
                ],
            },
            {"role": "tool", "tool_call_id": "a", "content": "one"},
            {"role": "tool", "tool_call_id": "b", "content": "Error: two"},
            {"role": "user", "content": "so?"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "get_time",
                    "description": "Tell the time.",
                    "parameters": {"type": "object", "properties": {}},
                },
            }
        ],
        "max_tokens": 7,
    }


def test_what_is_not_asked_for_is_not_sent() -> None:
    """Servers refuse empty lists of tools and bounds of null."""
    assert set(body(user(TextBlock("hi")))) == {"model", "messages", "stream", "stream_options"}


@pytest.mark.rule(14)
def test_a_call_without_text_has_null_content() -> None:
    """B08: no empty text is sent beside a call."""
    message = sent(
        user(TextBlock("hi")), model(ToolUseBlock("a", "f")), user(ToolResultBlock("a", "x"))
    )[1]
    assert message["content"] is None


def test_texts_of_one_message_are_paragraphs() -> None:
    """A list of parts is not understood everywhere."""
    assert sent(user(TextBlock("a"), TextBlock(" "), TextBlock("b"))) == [
        {"role": "user", "content": "a\n\nb"}
    ]


@pytest.mark.parametrize(("said", "told"), [("", "(no output)"), (" \n", "(no output)"), ("x", "x")])
def test_a_result_is_never_empty(said: str, told: str) -> None:
    """B08: some servers refuse a message without text."""
    call, result = (
        model(ToolUseBlock("a", "f")),
        user(ToolResultBlock("a", said, for_user="for people")),
    )
    assert sent(user(TextBlock("hi")), call, result)[2]["content"] == told


@pytest.mark.rule(14)
def test_what_other_providers_made_stays_here() -> None:
    """B10: reasoning, signed or not, and opaque blocks go back to their maker only."""
    theirs = (
        ThinkingBlock("hm", "signed"),
        RedactedThinkingBlock("data"),
        OpaqueBlock("anthropic", {"message": {"reasoning_content": "no"}}),
    )
    assert sent(user(TextBlock("a")), model(*theirs, TextBlock("b")), user(TextBlock("c"))) == [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]


def test_a_message_of_nothing_else_is_left_out() -> None:
    """B08: and the user's messages on its two sides become one, so that roles go on alternating."""
    messages = sent(user(TextBlock("a")), model(RedactedThinkingBlock("x")), user(TextBlock("b")))
    assert messages == [{"role": "user", "content": "a\n\nb"}]


@pytest.mark.rule(14)
def test_what_the_server_wants_back_goes_back() -> None:
    """B10: signatures on their calls, reasoning on its message, byte for byte."""
    details = [{"type": "reasoning.encrypted", "data": "E=="}]
    raw = {
        "calls": {"b": {"extra_content": SIGNATURE}},
        "message": {"reasoning_content": "", "reasoning_details": details},
    }
    message = sent(
        user(TextBlock("hi")),
        model(ToolUseBlock("a", "f"), ToolUseBlock("b", "g"), OpaqueBlock("openai", raw)),
        user(ToolResultBlock("a", "x"), ToolResultBlock("b", "y")),
    )[1]
    first, second = cast("list[JsonObject]", message["tool_calls"])
    assert "extra_content" not in first
    assert second["extra_content"] == SIGNATURE
    assert second["id"] == "b"
    assert (message["reasoning_content"], message["reasoning_details"]) == ("", details)


@pytest.mark.parametrize(
    "raw", [{}, {"calls": None}, {"calls": {"a": 5}}, {"message": []}, {"calls": [], "message": "x"}]
)
def test_a_damaged_block_is_passed_over(raw: dict[str, object]) -> None:
    """What is stored may be of another version; a request is made all the same."""
    call = model(ToolUseBlock("a", "f"), OpaqueBlock("openai", raw))
    message = sent(user(TextBlock("hi")), call, user(ToolResultBlock("a", "x")))[1]
    assert set(message) == {"role", "content", "tool_calls"}


def test_arguments_that_were_no_object_are_not_sent_back() -> None:
    """C05: the text is for people; the model is answered by the error result."""
    call = model(ToolUseBlock("a", "f", raw_input='{"x": '))
    message = sent(user(TextBlock("hi")), call, user(ToolResultBlock("a", "bad", is_error=True)))[1]
    assert '{"x": ' not in json.dumps(message)


@pytest.mark.parametrize(
    ("name", "told"),
    [("get_time ", "get_time_"), ("a.b/c", "a_b_c"), ("", "unknown"), ("é" * 70, "_" * 64)],
)
def test_a_name_the_model_made_up_is_sent_as_one_that_is_allowed(name: str, told: str) -> None:
    """C11: no API takes back what its own model called out."""
    call = model(ToolUseBlock("a", name))
    message = sent(user(TextBlock("hi")), call, user(ToolResultBlock("a", "x", is_error=True)))[1]
    (only,) = cast("list[dict[str, JsonObject]]", message["tool_calls"])
    assert only["function"]["name"] == told


@pytest.mark.rule(20)
def test_text_that_cannot_be_sent_is_cleaned() -> None:
    """A lone surrogate is no UTF-8, and a NUL is nothing a server wants."""
    assert sent(user(TextBlock("a\udc00b\0")))[0]["content"] == "a\ufffdb\ufffd"


def test_arguments_that_are_not_json_are_refused() -> None:
    """NaN does not slip into a request."""
    with pytest.raises(InvalidInput):
        sent(user(TextBlock("x")), model(ToolUseBlock("a", "f", {"x": float("nan")})))


@pytest.mark.rule(14)
def test_nothing_kept_changes_what_a_message_is() -> None:
    """S-H6: role, content and calls are ours; of what was kept only known fields go back."""
    call = {"id": "z", "type": "x", "function": {"name": "g"}, "index": 0, "extra_content": SIGNATURE}
    raw: JsonObject = {
        "message": {
            "role": "system",
            "content": "do X",
            "tool_calls": [],
            "name": "root",
            "tool_call_id": "a",
            "reasoning_content": "so",
        },
        "calls": {"a": call},
    }
    said = model(TextBlock("hi"), ToolUseBlock("a", "f"), OpaqueBlock("openai", raw))
    assert sent(user(TextBlock("?")), said, user(ToolResultBlock("a", "x")))[1] == {
        "role": "assistant",
        "content": "hi",
        "reasoning_content": "so",
        "tool_calls": [
            {
                "id": "a",
                "type": "function",
                "function": {"name": "f", "arguments": "{}"},
                "extra_content": SIGNATURE,
            }
        ],
    }


def wire(**ids: str) -> OpaqueBlock:
    """Keep ids as the server gave them."""
    return OpaqueBlock("openai", {"calls": {call_id: {"id": own} for call_id, own in ids.items()}})


@pytest.mark.rule(14)
def test_ids_of_the_server_go_back_as_they_came() -> None:
    """P1: to the provider that gave them, with call and result, and each once in a message."""
    messages = sent(
        user(TextBlock("hi")),
        model(ToolUseBlock("f_0", "f"), wire(f_0="functions.f:0")),
        user(ToolResultBlock("f_0", "x")),
        model(
            ToolUseBlock("f_0_2", "f"),
            ToolUseBlock("f_0_3", "f"),
            ToolUseBlock("b", "f"),
            wire(f_0_2="f:0", f_0_3="f:0", b="c"),
        ),
        user(ToolResultBlock("f_0_2", "y"), ToolResultBlock("f_0_3", "z"), ToolResultBlock("b", "z")),
    )
    calls = [call["id"] for m in messages for call in cast("list[JsonObject]", m.get("tool_calls", []))]
    assert calls == ["functions.f:0", "f:0", "f_0_3", "b"]
    assert calls == [m["tool_call_id"] for m in messages if m["role"] == "tool"]


def test_messages_that_were_joined_keep_their_ids() -> None:
    """P1: a message may be two in one, after something between them was left out."""
    both = model(ToolUseBlock("a", "f"), wire(a="f:0"), ToolUseBlock("b", "f"), wire(b="f:1"))
    message = sent(
        user(TextBlock("hi")), both, user(ToolResultBlock("a", ""), ToolResultBlock("b", ""))
    )[1]
    assert [c["id"] for c in cast("list[JsonObject]", message["tool_calls"])] == ["f:0", "f:1"]


@pytest.mark.parametrize("depth", range(50, 66))
def test_a_tool_that_can_be_made_can_be_sent(depth: int) -> None:
    """P2: its schema lies deeper in a request than in the tool."""
    schema: JsonObject = {"type": "object"}
    for _ in range(depth // 2):
        schema = {"type": "object", "properties": {"x": schema}}
    try:
        tool = Tool("t", "", schema, Effects.READ_ONLY, print)
    except RegistrationError:
        assert depth > 54
    else:
        assert body(user(TextBlock("hi")), tools=(tool.definition,))["tools"]


TOOL = ToolDefinition("get_time", "Tell the time.", {"type": "object", "properties": {}})


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        (ModelOptions(), {}),
        (ModelOptions(temperature=0, top_p=0.5), {"temperature": 0, "top_p": 0.5}),
        (ModelOptions(reasoning_effort="low"), {"reasoning_effort": "low"}),
        (ModelOptions(stop_sequences=("a", "b")), {"stop": ["a", "b"]}),
        (ModelOptions(tool_choice="required"), {"tool_choice": "required"}),
        (
            ModelOptions(tool_choice="get_time", parallel_tool_calls=False),
            {
                "tool_choice": {"type": "function", "function": {"name": "get_time"}},
                "parallel_tool_calls": False,
            },
        ),
        (ModelOptions(extra={"seed": 7, "model": "other"}), {"seed": 7}),
    ],
    ids=str,
)
def test_options_become_fields(options: ModelOptions, fields: dict[str, object]) -> None:
    """And nothing else is sent; `extra` replaces nothing of hango's."""
    conversation = (user(TextBlock("hi")),)
    without = ProviderRequest("m", "", conversation, (TOOL,), 1)
    plain, asked = (
        cast(
            "dict[str, object]",
            json.loads(build_request(request, provider="p", max_tokens_field="max_tokens")),
        )
        for request in (without, attrs.evolve(without, options=options))
    )
    assert asked == plain | fields


def test_choices_of_tools_are_not_sent_without_tools() -> None:
    """OpenAI refuses such a request."""
    options = ModelOptions(tool_choice="none", parallel_tool_calls=True)
    request = ProviderRequest("m", "", (user(TextBlock("hi")),), (), 1, options=options)
    sent_body = build_request(request, provider="p", max_tokens_field="max_tokens")
    assert not {"tool_choice", "parallel_tool_calls"} & json.loads(sent_body).keys()
