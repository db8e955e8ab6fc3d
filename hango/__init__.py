"""hango: a runtime on trio that runs AI agents durably in Postgres.

Everything exported here, in `hango.testing` and in `hango.testing.plugin` is public and stays; all
other names may change.

The names are loaded when the first of them is used: `import hango` alone is fast, so that the command
line is ready for signals right after its start.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = [
    "Agent",
    "AnthropicProvider",
    "BeforeToolEvent",
    "Block",
    "BlockStart",
    "BlockStop",
    "Completion",
    "ConfigError",
    "ContextExceeded",
    "Effects",
    "Guardrail",
    "HangoError",
    "InputDelta",
    "InvalidInput",
    "Limits",
    "Loop",
    "LoopBusy",
    "LoopOutcome",
    "Message",
    "ModelOptions",
    "OpaqueBlock",
    "Outcome",
    "Plugins",
    "PromptMessage",
    "Provider",
    "ProviderError",
    "ProviderEvent",
    "ProviderRequest",
    "ProviderStreamBroken",
    "RedactedThinkingBlock",
    "RegistrationError",
    "Registry",
    "Result",
    "RunOpts",
    "RunResult",
    "RunState",
    "Scope",
    "SignatureDelta",
    "Stop",
    "StopReason",
    "TextBlock",
    "TextDelta",
    "ThinkingBlock",
    "ThinkingDelta",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolDefinition",
    "ToolResult",
    "ToolResultBlock",
    "ToolSet",
    "ToolUseBlock",
    "Toolkit",
    "UnsupportedStop",
    "Usage",
    "UsageUpdate",
    "Verdict",
    "Verifier",
    "all_todos_done",
    "loop_unsupported",
    "openai_provider",
    "tool",
]


if TYPE_CHECKING:
    from hango.exports import *  # noqa: F403 - exactly __all__, as a test checks
else:

    def __getattr__(name: str) -> object:
        if name not in __all__:  # perhaps a submodule, which the import system loads then
            raise AttributeError(f"module 'hango' has no attribute {name!r}")
        return globals().setdefault(name, getattr(import_module("hango.exports"), name))

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
