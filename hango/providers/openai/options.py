"""The model options of an agent as fields of a Chat Completions request.  Pure.

https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

from hango.domain import JsonObject, ModelOptions, ProviderRequest
from hango.domain.model_options import TOOL_CHOICES
from hango.errors import InvalidInput

MAX_STOP_SEQUENCES = 4  # OpenAI's bound
# Fields of the request that hango sets, and the option to use instead, if there is one.  `n` is among
# them since only the first choice is read, and all are billed.
_OWN_FIELDS = {
    **dict.fromkeys(("model", "messages", "stream", "stream_options", "tools", "functions", "n"), ""),
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "reasoning_effort": "reasoning_effort",
    "tool_choice": "tool_choice",
    "function_call": "tool_choice",
    "parallel_tool_calls": "parallel_tool_calls",
    "stop": "stop_sequences",
}


def check_options(options: ModelOptions, provider: str) -> None:
    """Check that the API has what *options* asks for.

    Raises:
        InvalidInput: its field is the first option that cannot be sent.
    """
    if options.thinking_budget is not None:
        raise InvalidInput(
            f"provider {provider} has no such option; use reasoning_effort", field="thinking_budget"
        )
    if len(options.stop_sequences) > MAX_STOP_SEQUENCES:
        raise InvalidInput(
            f"must be at most {MAX_STOP_SEQUENCES} for provider {provider}", field="stop_sequences"
        )
    for name in options.extra:
        if name in _OWN_FIELDS:
            instead = _OWN_FIELDS[name]
            hint = f"; use model_options.{instead}" if instead else ""
            raise InvalidInput(f"hango sets it itself{hint}", field=f"extra.{name}")


def option_fields(request: ProviderRequest) -> JsonObject:
    """Return the fields of the body that the request's options mean; may be empty."""
    options = request.options
    fields: dict[str, object] = dict(options.extra)
    for name in ("temperature", "top_p", "reasoning_effort"):
        if (value := getattr(options, name)) is not None:
            fields[name] = value
    if options.stop_sequences:
        fields["stop"] = list(options.stop_sequences)
    if request.tools:  # OpenAI refuses both of these without tools
        if options.tool_choice is not None:
            fields["tool_choice"] = _tool_choice(options.tool_choice)
        if options.parallel_tool_calls is not None:
            fields["parallel_tool_calls"] = options.parallel_tool_calls
    return fields


def _tool_choice(choice: str) -> object:
    if choice in TOOL_CHOICES:
        return choice
    return {"type": "function", "function": {"name": choice}}
