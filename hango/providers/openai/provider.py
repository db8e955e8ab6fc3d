"""A provider for the Chat Completions API, streamed.

Rule: every failure is a `ProviderError` that says whether the same request may succeed later.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import httpx

from hango.call_ids import CallIds
from hango.domain import ModelOptions, ProviderEvent, ProviderRequest
from hango.errors import InvalidInput
from hango.providers.endpoint import HEADERS, check_key, read_base_url, stripped
from hango.providers.failures import unsendable
from hango.providers.http import HttpRequest
from hango.providers.openai.answer import ChatAnswer
from hango.providers.openai.options import check_options
from hango.providers.openai.request import build_request
from hango.providers.stream import TAIL_TIMEOUT, open_answer

DEFAULT_URL = "https://api.openai.com/v1"
PATH = "/chat/completions"
# OpenAI's reasoning models refuse "max_tokens"; most other servers know nothing else
# (https://platform.openai.com/docs/api-reference/chat/create).
_OPENAI_HOSTS = ("api.openai.com", ".openai.azure.com")


@attrs.frozen
class OpenAIProvider:
    """A server of the Chat Completions API.

    Attributes:
        base_url: without a path, ``/v1`` is added; a path is kept as it is.
        api_key: empty for a server that wants none.
        timeout: seconds without a byte after which a stream counts as broken; comments are bytes too.
        name: agents refer to it, and opaque blocks carry it, so two servers need two names.
        model: used by requests that name none.
        key_name: what an error calls the key, such as the variable that holds it; may be empty.

    Raises:
        RegistrationError: the URL is not one, or the key has characters that no header can carry.
    """

    base_url: str = attrs.field(default=DEFAULT_URL, repr=False)  # may hold a password
    api_key: str = attrs.field(default="", repr=False, converter=stripped)
    timeout: float = 60.0
    name: str = "openai"
    model: str = ""
    tail_timeout: float = TAIL_TIMEOUT
    key_name: str = ""
    _url: httpx.URL = attrs.field(init=False, repr=False)

    @_url.default
    def _normalised(self) -> httpx.URL:
        return chat_url(self.base_url)

    def __attrs_post_init__(self) -> None:
        """Refuse a key that no header can carry, without quoting it."""
        check_key(self.api_key, self.name)

    @asynccontextmanager
    async def stream(self, request: ProviderRequest) -> AsyncIterator[AsyncIterator[ProviderEvent]]:
        """Ask for one answer; see `hango.agent.ports.Provider`."""
        offered = frozenset(tool.name for tool in request.tools)
        answer = ChatAnswer(self.name, CallIds.after(request), offered)
        async with open_answer(self._call(request), answer, self.tail_timeout) as events:
            yield events

    def check_options(self, model: str, options: ModelOptions) -> None:  # noqa: ARG002 - the same for all
        """Check model options; see `hango.agent.ports.OptionsChecker`."""
        check_options(options, self.name)

    def _call(self, request: ProviderRequest) -> HttpRequest:
        headers = dict(HEADERS)
        if self.api_key:
            headers["authorization"] = f"Bearer {self.api_key}"
        host = self._url.host
        field = "max_completion_tokens" if host.endswith(_OPENAI_HOSTS) else "max_tokens"
        try:
            asked = request if request.model else attrs.evolve(request, model=self.model)
            body = build_request(asked, provider=self.name, max_tokens_field=field)
        except InvalidInput as error:
            raise unsendable(self.name, error) from error
        return HttpRequest(
            self.name, self._url, headers, body, self.timeout, self.api_key, self.key_name
        )


openai_provider = OpenAIProvider
"""Another name of the class; it was a function once."""


def chat_url(base_url: str) -> httpx.URL:
    """Return the URL to post to, from a base URL as people write it.

    Raises:
        RegistrationError: it is not an http or https URL.
    """
    url = read_base_url(base_url, DEFAULT_URL)
    path = url.path.rstrip("/") or "/v1"
    return url.copy_with(path=path if path.endswith(PATH) else path + PATH)
