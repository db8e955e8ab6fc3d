"""A provider for the Messages API, streamed.

Rule: every failure is a `ProviderError` that says whether the same request may succeed later.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import httpx

from hango.call_ids import CallIds
from hango.domain import ProviderEvent, ProviderRequest
from hango.errors import InvalidInput
from hango.providers.anthropic.answer import MessageAnswer
from hango.providers.anthropic.request import build_request
from hango.providers.endpoint import HEADERS, check_key, read_base_url, stripped
from hango.providers.failures import unsendable
from hango.providers.http import HttpRequest
from hango.providers.stream import TAIL_TIMEOUT, open_answer

DEFAULT_URL = "https://api.anthropic.com"
PATH = "/v1/messages"
VERSION = "2023-06-01"  # https://docs.anthropic.com/en/api/versioning


@attrs.frozen
class AnthropicProvider:
    """A server of the Messages API.

    Attributes:
        base_url: ``/v1/messages`` is added, unless it ends so.
        api_key: empty for a server that wants none.
        timeout: seconds without a byte after which a stream counts as broken; pings are bytes too.
        name: agents refer to it, and blocks to send back carry it, so two servers need two names.
        model: used by requests that name none.
        key_name: what an error calls the key, such as the variable that holds it; may be empty.
        cache: whether requests have cache markers; servers that do not know them mostly ignore them.

    Raises:
        RegistrationError: the URL is not one, or the key has characters that no header can carry.
    """

    base_url: str = attrs.field(default=DEFAULT_URL, repr=False)  # may hold a password
    api_key: str = attrs.field(default="", repr=False, converter=stripped)
    timeout: float = 60.0
    name: str = "anthropic"
    model: str = ""
    tail_timeout: float = TAIL_TIMEOUT
    key_name: str = ""
    cache: bool = True
    _url: httpx.URL = attrs.field(init=False, repr=False)

    @_url.default
    def _normalised(self) -> httpx.URL:
        return messages_url(self.base_url)

    def __attrs_post_init__(self) -> None:
        """Refuse a key that no header can carry, without quoting it."""
        check_key(self.api_key, self.name)

    @asynccontextmanager
    async def stream(self, request: ProviderRequest) -> AsyncIterator[AsyncIterator[ProviderEvent]]:
        """Ask for one answer; see `hango.agent.ports.Provider`."""
        answer = MessageAnswer(self.name, CallIds.after(request))
        async with open_answer(self._call(request), answer, self.tail_timeout) as events:
            yield events

    def _call(self, request: ProviderRequest) -> HttpRequest:
        headers = {**HEADERS, "anthropic-version": VERSION}
        if self.api_key:
            headers["x-api-key"] = self.api_key
        try:
            asked = request if request.model else attrs.evolve(request, model=self.model)
            body = build_request(asked, provider=self.name, cache=self.cache)
        except InvalidInput as error:
            raise unsendable(self.name, error) from error
        return HttpRequest(
            self.name, self._url, headers, body, self.timeout, self.api_key, self.key_name
        )


def messages_url(base_url: str) -> httpx.URL:
    """Return the URL to post to, from a base URL as people write it, with or without ``/v1``.

    Raises:
        RegistrationError: it is not an http or https URL.
    """
    url = read_base_url(base_url, DEFAULT_URL)
    path = url.path.rstrip("/").removesuffix(PATH).removesuffix("/v1")
    return url.copy_with(path=path + PATH)
