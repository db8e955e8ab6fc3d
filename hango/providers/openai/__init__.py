"""Chat Completions: OpenAI's API, and the many servers that speak it."""

from hango.providers.openai.provider import OpenAIProvider, chat_url, openai_provider

__all__ = ["OpenAIProvider", "chat_url", "openai_provider"]
