"""Model providers: each turns one wire format into the events the agent loop understands.

One rule: a provider asks once and tells what came.  It neither retries, nor judges an answer, nor keeps
anything between two calls.  They fit `hango.agent.ports.Provider` by shape.
"""

from hango.providers.demo import DemoProvider
from hango.providers.openai import OpenAIProvider, openai_provider

__all__ = ["DemoProvider", "OpenAIProvider", "openai_provider"]
