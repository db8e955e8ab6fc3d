"""What the API takes.

Rule: strict.  Nothing is converted ("5" is not 5, true is not 1), and a member that is not declared
here is refused.  The names that an agent uses are looked up in the context of the validation, a
`Registered`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, ClassVar, Literal, Never, cast

import attrs
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    RootModel,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from hango.agent import Provider
from hango.domain import (
    Block,
    Gate,
    JsonObject,
    Limits,
    ModelOptions,
    Role,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserStatus,
)
from hango.domain.model_options import (
    EFFORTS,
    MAX_STOP_SEQUENCE,
    MAX_STOP_SEQUENCES,
    MAX_TEMPERATURE,
    MAX_TOKENS,
)
from hango.domain.names import (
    API_NAME,
    MAX_EMAIL,
    MAX_NAME,
    SLUG,
    check_email,
    check_name,
    check_slug,
    check_title,
)
from hango.web.models.blocks import ContentOf

# The most an agent may ask for; the settings of a server are usually far below.
MAX_ITERATIONS = 1000
MAX_TOOL_TIMEOUT = 3600  # seconds
MAX_RUN_DEADLINE = 24 * 3600  # seconds
MAX_STREAM_RETRIES = 10
MAX_ATTEMPTS = 100

# A member that may be left out but not be null; `model_fields_set` says which were given.
_ABSENT: Never = cast("Never", None)


@attrs.frozen
class Registered:
    """What this server has registered, which agents may use: names, and the providers themselves."""

    providers: Collection[str] = frozenset()
    tools: Collection[str] = frozenset()
    guardrails: Collection[str] = frozenset()
    verifiers: Collection[str] = frozenset()
    made_providers: Mapping[str, Provider] = attrs.field(factory=dict)


class RequestBody(BaseModel):
    """A JSON object that a client sends."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    EXAMPLE: ClassVar[JsonObject] = {}

    @model_validator(mode="before")
    @classmethod
    def _drop_all_unknown_but_one(cls, value: object) -> object:
        """One unknown member is enough to refuse a body; errors for a hundred thousand are slow."""
        if not isinstance(value, dict) or len(value) <= len(cls.model_fields):
            return value
        unknown = next((name for name in value if name not in cls.model_fields), None)
        return {
            name: item for name, item in value.items() if name in cls.model_fields or name == unknown
        }


def _one_of(kind: str) -> AfterValidator:
    """Make a validator of names that are registered as *kind*, an attribute of `Registered`."""

    def check(name: str, info: ValidationInfo) -> str:
        known: Collection[str] = getattr(info.context, kind)
        if name not in known:
            listed = ", ".join(sorted(known)) or "those registered (there are none)"
            raise ValueError(f"must be one of {listed}")
        return name

    return AfterValidator(check)


def _unique(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError("holds a name twice")
    return names


Slug = Annotated[
    str, AfterValidator(check_slug), WithJsonSchema({"type": "string", "pattern": f"^{SLUG}$"})
]
Name = Annotated[
    str,
    AfterValidator(check_name),
    WithJsonSchema({"type": "string", "pattern": r"\S", "maxLength": MAX_NAME}),
]
Effort = Annotated[str, Field(json_schema_extra={"enum": list(EFFORTS)})]
ToolChoice = Annotated[str, WithJsonSchema({"type": "string", "pattern": f"^{API_NAME}$"})]
StopSequences = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=MAX_STOP_SEQUENCE)], ...],
    Field(strict=False, max_length=MAX_STOP_SEQUENCES),
]
Title = Annotated[
    str, AfterValidator(check_title), WithJsonSchema({"type": "string", "maxLength": MAX_NAME})
]
Email = Annotated[
    str,
    AfterValidator(check_email),
    WithJsonSchema({"type": "string", "format": "email", "maxLength": MAX_EMAIL}),
]
# An id of another spelling names nothing: that is a 404, not a wrong value.
Id = Annotated[str, AfterValidator(check_title), WithJsonSchema({"type": "string", "format": "uuid"})]
# Not strict, as JSON has neither enumerations nor tuples.
GivenRole = Annotated[Role, Field(strict=False)]
GivenStatus = Annotated[UserStatus, Field(strict=False)]
_NAMES = (
    Field(strict=False, json_schema_extra={"uniqueItems": True}),
    FailFast(),
    AfterValidator(_unique),
)
ToolNames = Annotated[tuple[Annotated[str, _one_of("tools")], ...], *_NAMES]
GuardrailNames = Annotated[tuple[Annotated[str, _one_of("guardrails")], ...], *_NAMES]


class NewRunBody(RequestBody):
    """A prompt."""

    EXAMPLE = {"input": "What time is it in Tokyo?"}
    input: Annotated[tuple[Block, ...], ContentOf((TextBlock,))]


class NewSessionBody(RequestBody):
    """A conversation to open."""

    EXAMPLE = {"agent_id": "{agent_id}", "title": "Clocks"}
    agent_id: Id
    title: Title = ""


# Thinking and opaque blocks say that a provider made them, and go back to it as they are: from a client
# they would be words in the model's or even the operator's mouth.
class UserMessageBody(RequestBody):
    """A message of a user."""

    role: Literal["user"]
    content: Annotated[tuple[Block, ...], ContentOf((TextBlock, ToolResultBlock))]


class AssistantMessageBody(RequestBody):
    """A message of the model."""

    role: Literal["assistant"]
    content: Annotated[tuple[Block, ...], ContentOf((TextBlock, ToolUseBlock))]


class NewMessageBody(
    RootModel[Annotated[UserMessageBody | AssistantMessageBody, Field(discriminator="role")]]
):
    """A message to add."""

    EXAMPLE: ClassVar[JsonObject] = {"role": "user", "content": "I live in Tokyo."}


class NewGateBody(RequestBody):
    """A completion gate: a verifier that must accept a finished run."""

    verify: Annotated[str, _one_of("verifiers")] = Field(
        description="The name of a registered verifier."
    )
    max_attempts: int = Field(ge=1, le=MAX_ATTEMPTS)


class NewLimitsBody(RequestBody):
    """An agent's own limits; null, or not given: the server's setting."""

    max_iterations: int | None = Field(
        None, ge=1, le=MAX_ITERATIONS, description="Provider calls in one run."
    )
    tool_timeout: float | None = Field(
        None, gt=0, le=MAX_TOOL_TIMEOUT, description="Seconds that one tool call may take."
    )
    run_deadline: float | None = Field(
        None, gt=0, le=MAX_RUN_DEADLINE, description="Seconds that one execution may take."
    )
    max_tokens: int | None = Field(
        None, ge=1, le=MAX_TOKENS, description="Tokens that one answer may have."
    )
    stream_retries: int | None = Field(
        None,
        ge=0,
        le=MAX_STREAM_RETRIES,
        description="How often an answer that broke off is asked for again; null: 2.",
    )


class NewModelOptionsBody(RequestBody):
    """What the agent asks of its model; null, or not given: the provider's default."""

    temperature: float | None = Field(None, ge=0, le=MAX_TEMPERATURE)
    top_p: float | None = Field(None, gt=0, le=1)
    max_tokens: int | None = Field(
        None, ge=1, le=MAX_TOKENS, description="Of one answer; the smaller of this and the limit's."
    )
    reasoning_effort: Effort | None = None
    thinking_budget: int | None = Field(
        None, ge=1, le=MAX_TOKENS, description="Tokens of reasoning in one answer."
    )
    tool_choice: ToolChoice | None = Field(
        None,
        description="`auto`, `none`, `required`, or a tool's name; the last two: for the first answer.",
    )
    parallel_tool_calls: bool | None = None
    stop_sequences: StopSequences = ()
    extra: JsonObject = Field(
        {}, description="Further members of the provider's request, sent as they are."
    )


class AgentChangeBody(RequestBody):
    """Members that are not given stay; lists and limits are replaced as a whole."""

    EXAMPLE = {"system_prompt": "Answer in one sentence.", "limits": {"max_iterations": 5}}
    slug: Annotated[Slug, Field(description="Unique in the tenant.")] = _ABSENT
    name: Annotated[Name, Field(description="For people; by default the slug.")] = _ABSENT
    provider: Annotated[
        str, _one_of("providers"), Field(description="A registered provider's name.")
    ] = _ABSENT
    model: Annotated[Name, Field(description="The provider's name for it.")] = _ABSENT
    system_prompt: str = _ABSENT
    tools: Annotated[
        ToolNames, Field(description="Registered tools it may call; empty: all of them.")
    ] = _ABSENT
    guardrails: Annotated[
        GuardrailNames,
        Field(description="Registered guardrails, in the order they are asked."),
    ] = _ABSENT
    completion: Annotated[NewGateBody, AfterValidator(lambda it: Gate(**dict(it)))] | None = _ABSENT
    limits: Annotated[NewLimitsBody, AfterValidator(lambda it: Limits(**dict(it)))] = _ABSENT
    model_options: Annotated[
        NewModelOptionsBody, AfterValidator(lambda it: ModelOptions(**dict(it)))
    ] = _ABSENT


class NewAgentBody(AgentChangeBody):
    """An agent to store."""

    EXAMPLE = {"slug": "clock", "provider": "demo", "model": "demo-1", "tools": ["get_time"]}
    slug: Annotated[Slug, Field(description="Unique in the tenant.")]
    provider: Annotated[str, _one_of("providers"), Field(description="A registered provider's name.")]
    model: Annotated[Name, Field(description="The provider's name for it.")]


class NewUserBody(RequestBody):
    """A person to add to the tenant."""

    EXAMPLE = {"email": "ada@example.com", "role": "member"}
    email: Email
    role: GivenRole = Role.MEMBER


class UserChangeBody(RequestBody):
    """Members that are not given stay."""

    EXAMPLE = {"status": "disabled"}
    role: GivenRole = _ABSENT
    status: GivenStatus = _ABSENT
    keep_keys: Annotated[bool, Field(description="In a promotion, do not revoke the user's keys.")] = (
        False
    )


class EmptyBody(RequestBody):
    """Nothing."""
