"""The public names of hango, which `hango` loads when the first of them is used.

Each import repeats its name, which is how type checkers know that it is meant for others.
"""

from hango.agent import Agent as Agent
from hango.agent import BeforeToolEvent as BeforeToolEvent
from hango.agent import Completion as Completion
from hango.agent import Guardrail as Guardrail
from hango.agent import Loop as Loop
from hango.agent import Outcome as Outcome
from hango.agent import Provider as Provider
from hango.agent import RunOpts as RunOpts
from hango.agent import RunResult as RunResult
from hango.agent import ToolCall as ToolCall
from hango.agent import Verdict as Verdict
from hango.agent import Verifier as Verifier
from hango.agent import all_todos_done as all_todos_done
from hango.agent import loop_unsupported as loop_unsupported
from hango.domain import Block as Block
from hango.domain import BlockStart as BlockStart
from hango.domain import BlockStop as BlockStop
from hango.domain import Effects as Effects
from hango.domain import InputDelta as InputDelta
from hango.domain import Limits as Limits
from hango.domain import Message as Message
from hango.domain import ModelOptions as ModelOptions
from hango.domain import OpaqueBlock as OpaqueBlock
from hango.domain import PromptMessage as PromptMessage
from hango.domain import ProviderEvent as ProviderEvent
from hango.domain import ProviderRequest as ProviderRequest
from hango.domain import RedactedThinkingBlock as RedactedThinkingBlock
from hango.domain import Result as Result
from hango.domain import RunState as RunState
from hango.domain import Scope as Scope
from hango.domain import SignatureDelta as SignatureDelta
from hango.domain import Stop as Stop
from hango.domain import StopReason as StopReason
from hango.domain import TextBlock as TextBlock
from hango.domain import TextDelta as TextDelta
from hango.domain import ThinkingBlock as ThinkingBlock
from hango.domain import ThinkingDelta as ThinkingDelta
from hango.domain import ToolContext as ToolContext
from hango.domain import ToolDefinition as ToolDefinition
from hango.domain import ToolResultBlock as ToolResultBlock
from hango.domain import ToolUseBlock as ToolUseBlock
from hango.domain import Usage as Usage
from hango.domain import UsageUpdate as UsageUpdate
from hango.errors import ConfigError as ConfigError
from hango.errors import ContextExceeded as ContextExceeded
from hango.errors import HangoError as HangoError
from hango.errors import InvalidInput as InvalidInput
from hango.errors import LoopBusy as LoopBusy
from hango.errors import ProviderError as ProviderError
from hango.errors import ProviderStreamBroken as ProviderStreamBroken
from hango.errors import RegistrationError as RegistrationError
from hango.errors import UnsupportedStop as UnsupportedStop
from hango.plugins import Plugins as Plugins
from hango.providers import AnthropicProvider as AnthropicProvider
from hango.providers import openai_provider as openai_provider
from hango.tools import Registry as Registry
from hango.tools import Tool as Tool
from hango.tools import Toolkit as Toolkit
from hango.tools import ToolSet as ToolSet
from hango.tools import tool as tool

# Longer names of the same classes, for modules that import them beside others
ToolResult = Result
LoopOutcome = Outcome
