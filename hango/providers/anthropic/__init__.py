"""The Messages API: Anthropic's, and that of compatible servers."""

from hango.providers.anthropic.provider import AnthropicProvider, messages_url

__all__ = ["AnthropicProvider", "messages_url"]
