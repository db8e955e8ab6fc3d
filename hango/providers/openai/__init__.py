"""The Chat Completions API: OpenAI's, and that of the many compatible servers."""

from hango.providers.openai.provider import OpenAIProvider, chat_url, openai_provider

__all__ = ["OpenAIProvider", "chat_url", "openai_provider"]
