"""The blocks of messages: their schemas, and how a client's text or blocks are read.

Rule: `hango.codec` reads and writes blocks, as it does for the database; the models here only describe
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import attrs
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    RootModel,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from hango.codec import NOT_A_BLOCK, blocks_from_json, blocks_to_json
from hango.domain import (
    Block,
    JsonObject,
    OpaqueBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from hango.errors import InvalidInput

MAX_BLOCKS = 1000  # of one message; real ones have a handful


class _BlockModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class TextBlockJson(_BlockModel):
    """Plain text."""

    type: Literal["text"]
    text: str


class ThinkingBlockJson(_BlockModel):
    """A model's reasoning."""

    type: Literal["thinking"]
    thinking: str
    signature: str = ""
    provider: str | None = Field(None, description="Who signed it.")


class RedactedThinkingBlockJson(_BlockModel):
    """Reasoning that the provider encrypted."""

    type: Literal["redacted_thinking"]
    data: str
    provider: str | None = Field(None, description="Who encrypted it.")


class ToolUseBlockJson(_BlockModel):
    """A tool call that the model asks for."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: JsonObject = {}
    raw_input: str | None = Field(None, description="The arguments as received, if not an object.")


class ToolResultBlockJson(_BlockModel):
    """The result of a tool call."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: str
    is_error: bool = False
    for_user: str | None = Field(None, description="The text for people, where it differs.")


class OpaqueBlockJson(_BlockModel):
    """A block in a provider's own format, kept so that it can be sent back to that provider."""

    type: Literal["opaque"]
    provider: str
    raw: JsonObject


class BlockJson(
    RootModel[
        Annotated[
            TextBlockJson
            | ThinkingBlockJson
            | RedactedThinkingBlockJson
            | ToolUseBlockJson
            | ToolResultBlockJson
            | OpaqueBlockJson,
            Field(discriminator="type"),
        ]
    ]
):
    """One part of a message."""


MODELS: Mapping[type[Block], type[BaseModel]] = {
    TextBlock: TextBlockJson,
    ThinkingBlock: ThinkingBlockJson,
    RedactedThinkingBlock: RedactedThinkingBlockJson,
    ToolUseBlock: ToolUseBlockJson,
    ToolResultBlock: ToolResultBlockJson,
    OpaqueBlock: OpaqueBlockJson,
}
_NOT_BLANK = {
    "anyOf": [
        {"properties": {"type": {"not": {"const": "text"}}}},
        {"properties": {"text": {"pattern": r"\S"}}},
    ]
}


class _AsBlocks:
    """Describes a field of domain blocks as a list of `BlockJson`."""

    def __get_pydantic_json_schema__(
        self, _: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(core_schema.list_schema(BlockJson.__pydantic_core_schema__))


Blocks = Annotated[Sequence[Block], PlainValidator(blocks_to_json), _AsBlocks()]
"""Blocks in an answer."""


@attrs.frozen
class ContentOf:
    """Reads a text, or a list of blocks of *kinds*, as blocks; not all of them blank.

    Model APIs refuse a conversation with a blank message for ever after.
    """

    kinds: tuple[type[Block], ...]

    def __get_pydantic_core_schema__(self, _: object, __: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._read)

    def __get_pydantic_json_schema__(
        self, _: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        models = {kind.TYPE: MODELS[kind].__pydantic_core_schema__ for kind in self.kinds}
        blocks = handler(core_schema.list_schema(core_schema.tagged_union_schema(models, "type")))
        blocks |= {"minItems": 1, "maxItems": MAX_BLOCKS, "contains": _NOT_BLANK}
        text = {"type": "string", "pattern": r"\S"}
        return {"description": "A text, or blocks; not blank.", "anyOf": [text, blocks]}

    def _read(self, value: object) -> tuple[Block, ...]:
        blocks = (TextBlock(value),) if isinstance(value, str) else self._read_list(value)
        for index, block in enumerate(blocks):
            if not isinstance(block, self.kinds):
                raise _invalid(f"must not be {block.TYPE} here", f"{index}.type")
        if all(isinstance(block, TextBlock) and not block.text.strip() for block in blocks):
            raise _invalid("must not be blank")
        return blocks

    def _read_list(self, value: object) -> tuple[Block, ...]:
        if not isinstance(value, list):
            raise _invalid("must be a string or a list of blocks")
        if len(value) > MAX_BLOCKS:
            raise _invalid(f"must be at most {MAX_BLOCKS} blocks")
        try:
            return blocks_from_json(value)
        except InvalidInput as error:
            reason = str(error)
            if reason.startswith(NOT_A_BLOCK):  # name only the types that are taken here
                reason = f"{NOT_A_BLOCK} {', '.join(kind.TYPE for kind in self.kinds)}"
            raise _invalid(reason, error.field) from None


def _invalid(reason: str, field: str = "") -> PydanticCustomError:
    """Make an error of a member further in; `hango.web.wire` adds *field* to the path."""
    return PydanticCustomError("content", "{reason}", {"reason": reason, "field": field})
