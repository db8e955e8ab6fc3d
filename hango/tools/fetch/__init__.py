"""The HTTP client of http_fetch: allowed hosts, public addresses, bounded answers.

Rule: what was checked is what is used: a URL is parsed once, a name is resolved once, and the
connection goes to the address that passed.
"""

from hango.tools.fetch.addresses import IPAddress, Resolve, SystemResolver, is_public
from hango.tools.fetch.body import FetchedBody, read_body
from hango.tools.fetch.exchange import Exchange, FetchResponse
from hango.tools.fetch.targets import AllowedHosts, Target

__all__ = [
    "AllowedHosts",
    "Exchange",
    "FetchResponse",
    "FetchedBody",
    "IPAddress",
    "Resolve",
    "SystemResolver",
    "Target",
    "is_public",
    "read_body",
]
