"""Where a provider sends its requests: its URL, its key and the headers that all have.  Pure."""

from __future__ import annotations

from collections.abc import Mapping

import httpx

from hango.errors import RegistrationError

HEADERS: Mapping[str, str] = {
    "content-type": "application/json",
    "accept": "text/event-stream, application/json",
    "accept-encoding": "identity",  # compressors hold back what should be seen at once
    "user-agent": "hango",
}


def stripped(key: str) -> str:
    """Remove the line end of a key that was read from a file."""
    return key.strip()


def check_key(key: str, provider: str) -> None:
    """Check that a header can carry *key*; the error does not quote it.

    Raises:
        RegistrationError: it cannot.
    """
    if not (key.isascii() and (key.isprintable() or not key)):
        raise RegistrationError(f"the key of provider {provider!r} has characters that no key has")


def read_base_url(text: str, example: str) -> httpx.URL:
    """Read a base URL as people write it; its path has no slash at the end, and may be empty.

    Raises:
        RegistrationError: it is not an http or https URL; shows the *example*.
    """
    try:
        url = httpx.URL(text.strip())
    except (httpx.InvalidURL, ValueError):
        url = httpx.URL("")
    if url.scheme not in ("http", "https") or not url.host or "%" in url.host:
        raise RegistrationError(f"a provider's base URL must look like {example}")
    return url
