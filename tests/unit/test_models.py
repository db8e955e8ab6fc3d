"""The bodies that the API takes: strict, and refused by the path of the first wrong member."""

from __future__ import annotations

from typing import TypeAlias

import attrs
import pytest
from pydantic import BaseModel, ValidationError

from hango.domain import Block, Gate, Limits
from hango.errors import InvalidInput
from hango.store.agents import NewAgent
from hango.web.models import blocks
from hango.web.models.requests import (
    AgentChangeBody,
    EmptyBody,
    NewAgentBody,
    NewMessageBody,
    NewRunBody,
    NewSessionBody,
    NewUserBody,
    Registered,
    UserChangeBody,
)
from hango.web.models.validation import validate

JsonObject: TypeAlias = dict[str, object]

KNOWN = Registered(("demo",), ("a", "b"), ("g",), ("v",))
AGENT: JsonObject = {"slug": "s", "provider": "demo", "model": "m"}
GATE: JsonObject = {"verify": "v", "max_attempts": 2}
TEXT: JsonObject = {"type": "text", "text": "x"}


def limit(name: str, value: object) -> tuple[type[BaseModel], JsonObject, str]:
    """Return a change of one limit, and the path of its member."""
    return AgentChangeBody, {"limits": {name: value}}, f"limits.{name}"


WRONG: list[tuple[type[BaseModel], JsonObject, str]] = [
    (EmptyBody, {"x": None}, "x"),
    (NewRunBody, {}, "input"),
    (NewRunBody, {"imput": "x"}, "input"),
    (NewRunBody, {"input": "x", "imput": "x"}, "imput"),
    (NewRunBody, {"input": "x", "": "x"}, ""),
    (NewRunBody, {"input": 5}, "input"),
    (NewRunBody, {"input": [TEXT, {"type": "text"}]}, "input.1.text"),
    (NewRunBody, {"input": [TEXT, {"type": "opaque", "provider": "p", "raw": {}}]}, "input.1.type"),
    (NewSessionBody, {"agent_id": 5}, "agent_id"),
    (NewSessionBody, {"agent_id": "x" * 201}, "agent_id"),
    (NewSessionBody, {"agent_id": "x", "title": None}, "title"),
    (NewSessionBody, {"agent_id": "x", "title": "x" * 201}, "title"),
    (NewMessageBody, {}, "role"),
    (NewMessageBody, {"content": "x"}, "role"),
    (NewMessageBody, {"role": "system", "content": "x"}, "role"),
    (NewMessageBody, {"role": ["user"], "content": "x"}, "role"),
    (NewMessageBody, {"role": None, "content": "x"}, "role"),
    (NewMessageBody, {"role": "user"}, "content"),
    (NewMessageBody, {"role": "user", "content": "x", "user": 1}, "user"),
    (NewMessageBody, {"role": "user", "content": [TEXT | {"bold": True}]}, "content.0.bold"),
    (NewUserBody, {"email": "a@b", "role": "king"}, "role"),
    (NewUserBody, {"email": "a@b", "role": None}, "role"),
    (NewUserBody, {"email": ["a@b"]}, "email"),
    (UserChangeBody, {"status": True}, "status"),
    (UserChangeBody, {"role": None}, "role"),
    (NewAgentBody, AGENT | {"slug": None, "provider": "x"}, "slug"),
    (NewAgentBody, AGENT | {"provider": "x", "model": ""}, "provider"),
    (NewAgentBody, AGENT | {"color": "blue", "name": " "}, "name"),
    (AgentChangeBody, {"name": None}, "name"),
    (AgentChangeBody, {"system_prompt": 5}, "system_prompt"),
    (AgentChangeBody, {"tools": "a"}, "tools"),
    (AgentChangeBody, {"tools": None}, "tools"),
    (AgentChangeBody, {"tools": {"a": 1}}, "tools"),
    (AgentChangeBody, {"tools": ["a", "c"]}, "tools.1"),
    (AgentChangeBody, {"tools": ["a", ["b"]]}, "tools.1"),
    (AgentChangeBody, {"tools": ["a", "b", "a"]}, "tools"),
    (AgentChangeBody, {"guardrails": ["a"]}, "guardrails.0"),
    (AgentChangeBody, {"completion": []}, "completion"),
    (AgentChangeBody, {"completion": {}}, "completion.verify"),
    (AgentChangeBody, {"completion": GATE | {"max_attempts": True}}, "completion.max_attempts"),
    (AgentChangeBody, {"completion": GATE | {"max_attempts": "2"}}, "completion.max_attempts"),
    (AgentChangeBody, {"completion": GATE | {"more": 1}}, "completion.more"),
    (AgentChangeBody, {"limits": None}, "limits"),
    *(limit("max_iterations", value) for value in (0, 1001, 10**900, True, 1.0, "1")),
    *(limit("tool_timeout", value) for value in (0, -1, 3600.1, 10**900, False, "1s")),
    limit("max_cost", 1),
]


@pytest.mark.parametrize(("model", "body", "field"), WRONG, ids=lambda value: repr(value)[:60])
def test_a_wrong_member_is_named(model: type[BaseModel], body: JsonObject, field: str) -> None:
    """Nothing is converted, nothing unknown is ignored, and the first wrong member has its path."""
    with pytest.raises(InvalidInput) as refused:
        validate(body, model, KNOWN)
    assert refused.value.field == field
    assert str(refused.value)


def test_a_refusal_names_the_blocks_that_are_taken() -> None:
    """A conversation where text blocks belong is told which blocks do (W-L9)."""
    with pytest.raises(InvalidInput, match=r"must be an object of type text$") as refused:
        validate({"input": [{"role": "user", "content": "hi"}]}, NewRunBody)
    assert refused.value.field == "input.0"


@pytest.mark.parametrize("value", [None, [], "x", 3, True])
def test_a_body_that_is_no_object_is_refused(value: object) -> None:
    """Only an object is a body."""
    with pytest.raises(InvalidInput, match="must be an object"):
        validate(value, EmptyBody)


def test_what_is_given_is_told_from_what_is_not() -> None:
    """A change has the members that were sent, as the domain has them, and no others."""
    change = validate({"tools": ["b", "a"], "completion": None, "limits": {}}, AgentChangeBody, KNOWN)
    assert change.model_fields_set == {"tools", "completion", "limits"}
    assert dict(change) | {"tools": ("b", "a"), "completion": None, "limits": Limits()} == dict(change)
    gated = validate({"completion": GATE}, AgentChangeBody, KNOWN)
    assert dict(gated)["completion"] == Gate("v", 2)


def test_many_wrong_members_are_not_all_looked_at() -> None:
    """A body of 100,000 unknown members or names costs no more than its first wrong one."""
    many = {str(number): 0 for number in range(100_000)}
    for body, field in (
        ({"limits": many}, "limits.0"),
        ({"tools": ["x"] * 100_000}, "tools.0"),
        (many, "0"),
    ):
        with pytest.raises(InvalidInput) as refused:
            validate(body, AgentChangeBody, KNOWN)
        assert refused.value.field == field
        assert isinstance(refused.value.__context__, ValidationError)
        assert refused.value.__context__.error_count() == 1


def test_every_member_of_an_agent_can_be_given() -> None:
    """What is stored of an agent is what a client may set."""
    names = [field.name for field in attrs.fields(NewAgent)]
    assert list(AgentChangeBody.model_fields) == list(NewAgentBody.model_fields) == names


@pytest.mark.parametrize("block", blocks.MODELS, ids=lambda block: block.TYPE)
def test_blocks_are_described_as_they_are(block: type[Block]) -> None:
    """The description of a block has the members that the block has, and their defaults."""
    described = {
        name: not field.is_required()
        for name, field in blocks.MODELS[block].model_fields.items()
        if name != "type"
    }
    has = {field.name: field.default is not attrs.NOTHING for field in attrs.fields(block)}
    assert described == has
