"""Model providers: each turns one wire format into the events of the agent loop.

Rule: a provider sends one request and yields what arrives.  It does not retry, judge an answer, or keep
anything between two calls.  Providers fit `hango.agent.ports.Provider` by shape.
"""

from hango.providers.anthropic import AnthropicProvider
from hango.providers.demo import DemoProvider
from hango.providers.openai import OpenAIProvider, openai_provider

__all__ = ["AnthropicProvider", "DemoProvider", "OpenAIProvider", "openai_provider"]
