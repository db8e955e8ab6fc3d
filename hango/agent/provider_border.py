"""The border to a model provider, which may be a plug-in's.

Rule: whatever a provider raises or yields costs its run and nothing else (rule 27 of the design).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager

import attrs

from hango.agent.callbacks import exact_str
from hango.agent.ports import Provider
from hango.domain import (
    Block,
    BlockStart,
    BlockStop,
    InputDelta,
    ModelOptions,
    OpaqueBlock,
    ProviderEvent,
    RedactedThinkingBlock,
    SignatureDelta,
    Stop,
    StopReason,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolUseBlock,
    Usage,
    UsageUpdate,
)
from hango.domain.model_options import TOOL_CHOICES
from hango.errors import (
    ContextExceeded,
    InvalidInput,
    ProviderError,
    ProviderStreamBroken,
    UnsupportedStop,
)
from hango.safe_errors import describe, error_message, format_frames, is_ctrl_c

_EVENTS = (
    BlockStart
    | TextDelta
    | ThinkingDelta
    | SignatureDelta
    | InputDelta
    | BlockStop
    | UsageUpdate
    | Stop
)
_KINDS: tuple[type[ProviderError], ...] = (UnsupportedStop, ContextExceeded, ProviderStreamBroken)

_log = logging.getLogger(__name__)


def provider_name(provider: Provider) -> str:
    """Return the name of *provider*.

    Raises:
        ProviderError: it has none, or raised.
    """
    try:
        name = exact_str(provider.name)
        if name is None:
            raise TypeError("the name of a provider must be a str")  # noqa: TRY301 - as if it raised
    except BaseException as error:  # noqa: BLE001  # the border to foreign code
        raise as_provider_error(error) from None
    return name


def check_model_options(
    provider: Provider | None, model: str, options: ModelOptions, tools: Collection[str]
) -> None:
    """Check that *provider* can send *options*.

    Args:
        provider: of the agent; None where it is not registered, which leaves out its own check.
        model: the agent's.
        options: the agent's.
        tools: names of those that the agent may call.

    Raises:
        InvalidInput: the first option that cannot be used; its field begins with `model_options`.
    """
    try:
        options.check()
        _check_tool_choice(options.tool_choice, tools)
        if provider is not None:
            _ask_provider(provider, model, options)
    except InvalidInput as error:
        field = f"model_options.{error.field}" if error.field else "model_options"
        raise InvalidInput(str(error), field=field) from None


def _check_tool_choice(choice: str | None, tools: Collection[str]) -> None:
    if choice is not None and choice not in TOOL_CHOICES and choice not in tools:
        raise InvalidInput("is not a tool that this agent may call", field="tool_choice")


def _ask_provider(provider: Provider, model: str, options: ModelOptions) -> None:
    given = options.given()
    if not given:
        return
    name = provider_name(provider)
    check = getattr(provider, "check_options", None)
    if check is None:
        raise InvalidInput(f"provider {name} has no such option", field=next(iter(given)))
    try:
        check(model, options)
    except InvalidInput:
        raise
    except BaseException as error:  # the border to foreign code
        if is_ctrl_c(error):
            raise
        _log.error("provider %s: check_options raised %s", name, format_frames(error))
        raise InvalidInput(f"provider {name} cannot check them: {describe(error)}") from None


def as_provider_error(error: BaseException) -> ProviderError:
    """Return *error* as one of our own, which can be read safely; anything unexpected is logged."""
    if isinstance(error, ProviderError):
        kind = next((kind for kind in _KINDS if isinstance(error, kind)), ProviderError)
        try:
            after = error.retry_after
            return kind(
                error_message(error),
                code=exact_str(error.code) or "provider_error",
                retryable=error.retryable is True,
                retry_after=float(after) if isinstance(after, int | float) else None,
            )
        except BaseException as unreadable:  # noqa: BLE001  # its attributes may be properties
            return as_provider_error(RuntimeError(f"its error cannot be read: {describe(unreadable)}"))
    _log.error("the provider raised %s", format_frames(error))
    return ProviderError(f"the provider raised {describe(error)}", code="unexpected_error")


@asynccontextmanager
async def closing(stream: object) -> AsyncIterator[None]:
    """Close a generator at the end, which Python itself would do at any later time."""
    try:
        yield
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()


def check_event(event: ProviderEvent) -> None:
    """Check the types in *event*, so that nothing later raises; an unknown event is fine, and ignored.

    Raises:
        TypeError: it cannot be used.
    """
    match event:
        case TextDelta(int(), str()) | ThinkingDelta(int(), str()) | SignatureDelta(int(), str()):
            return
        case InputDelta(int(), str()) | BlockStop(int()) | Stop(StopReason()):
            return
        case BlockStart(int(), block) if _is_block(block):
            return
        case UsageUpdate(Usage() as usage) if _are_integers(attrs.astuple(usage)):
            return
    if isinstance(event, _EVENTS):
        raise TypeError(f"the provider sent a {type(event).__name__} with a field of a wrong type")


def _are_integers(values: Iterable[object]) -> bool:
    return all(type(value) is int for value in values)


def _is_block(block: Block) -> bool:
    match block:
        case TextBlock(str()) | ThinkingBlock(str(), str(), str() | None):
            return True
        case RedactedThinkingBlock(str(), str() | None):
            return True
        case ToolUseBlock(str(), str(), Mapping(), str() | None) | OpaqueBlock(str(), Mapping()):
            return True
    return False
