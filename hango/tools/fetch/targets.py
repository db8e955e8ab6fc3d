"""URLs and the list of allowed hosts.

Rule: a URL is parsed once, strictly; what two parsers could read differently is refused.  Names are
compared, resolved and connected to in the same form: ASCII (IDNA 2008), lower case, no final dot.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from urllib.parse import quote, urljoin, urlsplit

import attrs
import idna

from hango.codec import cut_text
from hango.errors import InvalidInput
from hango.tools.fetch.addresses import IPAddress

MAX_URL = 8192  # characters; servers refuse longer ones, as RFC 9110 §4.1 lets them from 8000
PORTS = {"http": 80, "https": 443}

_FORBIDDEN = re.compile(r"[\x00-\x20\x7f-\xa0\\\u2028\u2029\ufeff]")
_AUTHORITY = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:@%/?#]+)(?::(?P<port>[0-9]{1,5}))?")
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*")  # https://url.spec.whatwg.org/#ends-in-a-number-checker
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_OTHER_DOTS = re.compile("[\u3002\uff0e\uff61]")  # which IDNA libraries take for dots
_SAFE = "!$&'()*+,;=:@/?~-._%[]"  # kept as they are in a path or query; the rest is percent-encoded


@attrs.frozen
class Target:
    """A parsed URL, from which the whole request is built.

    Attributes:
        host: canonical: a lower-case ASCII name, or the text of an address without brackets.
        address: the address, if the host is one.
        path: path and query, percent-encoded, never empty.
    """

    scheme: str
    host: str
    port: int
    path: str
    address: IPAddress | None

    @classmethod
    def parse(cls, url: str) -> Target:
        """Read *url*.

        Raises:
            InvalidInput: not an absolute http or https URL, ambiguous, or with a user name.
        """
        if len(url) > MAX_URL:
            raise InvalidInput(f"a URL has at most {MAX_URL} characters")
        if _FORBIDDEN.search(url):
            raise InvalidInput("a URL holds no spaces, backslashes or control characters; encode them")
        try:
            parts = urlsplit(url)
        except ValueError as error:
            raise InvalidInput(f"not a URL: {cut_text(str(error), 200)}") from None
        if parts.scheme not in PORTS:
            raise InvalidInput("only http:// and https:// URLs can be fetched")
        if "@" in parts.netloc:
            raise InvalidInput("a URL with a user name or password is not fetched")
        if not parts.path and "@" in parts.query + parts.fragment:
            raise InvalidInput(
                "a URL with an @ right behind its host is ambiguous; write a / before it"
            )
        host, port, address = _read_authority(parts.netloc)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        encoded = quote(path, safe=_SAFE, errors="replace")
        return cls(parts.scheme, host, PORTS[parts.scheme] if port is None else port, encoded, address)

    def join(self, location: str) -> Target:
        """Return the target of a redirect from here to *location*.

        Raises:
            InvalidInput: as `parse`, or from https to http.
        """
        if len(location) > MAX_URL or _FORBIDDEN.search(location):
            raise InvalidInput("it redirects to something that is not a URL")
        try:
            target = Target.parse(urljoin(self.url, location))
        except ValueError as error:
            raise InvalidInput(f"it redirects to something that is not a URL: {error}") from None
        if self.scheme == "https" and target.scheme == "http":
            raise InvalidInput(f"it redirects from https to http ({target.host})")
        return target

    @property
    def authority(self) -> str:
        """Host and port as a Host header has them; the port only when it is not the scheme's own."""
        host = f"[{self.host}]" if isinstance(self.address, IPv6Address) else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL, in its canonical spelling."""
        return f"{self.scheme}://{self.authority}{self.path}"


def _read_authority(text: str) -> tuple[str, int | None, IPAddress | None]:
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        raise InvalidInput(f"not a host that can be fetched from: {cut_text(text, 200)}")
    port = int(match["port"]) if match["port"] else None
    if port is not None and not 0 < port < 65536:  # noqa: PLR2004  # the width of a port
        raise InvalidInput(f"there is no port {port}")
    host, address = _canonical_host(match["host"])
    return host, port, address


def _canonical_host(text: str) -> tuple[str, IPAddress | None]:
    """Return the one spelling of a host, and its address if it is one."""
    try:
        if text.startswith("["):
            address: IPAddress = IPv6Address(text[1:-1])
            return str(address), address
        name = _ascii_name(text)
        if _NUMERIC.fullmatch(name.rpartition(".")[2]):
            address = IPv4Address(name)
            return str(address), address
        return name, None
    except AddressValueError:
        shown = cut_text(text, 200)
        raise InvalidInput(f"{shown} is not an address in its plain spelling") from None


def _ascii_name(text: str) -> str:
    """Return a host name in ASCII.

    Only A-Z are folded.  Nothing else is mapped: a name with an ignorable, compatible or full-width
    character would turn into another one, which the reader of the URL may not have meant.
    """
    name = text.removesuffix(".")
    try:
        if not name.isascii():
            if _OTHER_DOTS.search(name):
                raise InvalidInput("a host name is written with plain dots")
            name = idna.encode(name.translate(_LOWER)).decode()
        name = name.lower()
        labels = name.split(".")
        for label in labels:
            if label.startswith("xn--"):
                idna.ulabel(label)
    except (idna.IDNAError, UnicodeError) as error:
        raise InvalidInput(f"not a host name: {cut_text(str(error), 200)}") from None
    if len(name) > 253 or not all(map(_LABEL.fullmatch, labels)):  # noqa: PLR2004  # RFC 1035 §2.3.4
        raise InvalidInput(f"not a host name: {cut_text(text, 200)}")
    return name


_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


# --- the allow-list -------------------------------------------------------------------------


@attrs.frozen
class _AllowedHost:
    """One entry of the list; *port* None means the two of http and https."""

    host: str
    below: bool
    port: int | None

    def admits(self, target: Target) -> bool:
        ports = tuple(PORTS.values()) if self.port is None else (self.port,)
        if target.port not in ports:
            return False
        if self.below:
            return target.address is None and target.host.endswith(f".{self.host}")
        return target.host == self.host


@attrs.frozen
class AllowedHosts:
    """The hosts that may be fetched from; empty for none.

    An entry is ``example.com`` (that name), ``*.example.com`` (every name below it, not itself), or an
    address; a port may follow (``example.com:8443``), without one ports 80 and 443 are meant.
    """

    _entries: tuple[_AllowedHost, ...] = ()

    @classmethod
    def parse(cls, entries: Iterable[str]) -> AllowedHosts:
        """Read *entries*.

        Raises:
            InvalidInput: some are not as above; its text names each of them.
        """
        read: list[_AllowedHost] = []
        problems: list[str] = []
        for entry in filter(str.strip, entries):
            try:
                read.append(_read_entry(entry))
            except InvalidInput as error:
                problems.append(f"{entry!r} ({error})")
        if problems:
            raise InvalidInput(
                f"not a host, *.host or host:port: {', '.join(problems)}; names only, no URLs"
            )
        return cls(tuple(read))

    def admit(self, target: Target) -> None:
        """Check that *target* is on the list.

        Raises:
            InvalidInput: it is not on the list.
        """
        if not any(entry.admits(target) for entry in self._entries):
            raise InvalidInput(
                f"{target.host}, port {target.port}, is not among the hosts this server may fetch from"
            )


def _read_entry(text: str) -> _AllowedHost:
    text = text.strip()
    below = text.startswith("*.")
    host, port, address = _read_authority(text.removeprefix("*."))
    if below and address is not None:
        raise InvalidInput("an address has no subdomains; write it without *.")
    return _AllowedHost(host, below, port)
