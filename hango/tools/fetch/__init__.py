"""How http_fetch reaches the outside: what may be asked for, which address, and how an answer is read.

Rule: each question is answered once, and what was checked is what is used: one parse of a URL, one
resolution of a name, a connection to the very address that passed.
"""

from hango.tools.fetch.addresses import IPAddress, Resolve, SystemResolver, is_public
from hango.tools.fetch.body import Body, read_body
from hango.tools.fetch.exchange import Answer, Exchange
from hango.tools.fetch.targets import AllowedHosts, Target

__all__ = [
    "AllowedHosts",
    "Answer",
    "Body",
    "Exchange",
    "IPAddress",
    "Resolve",
    "SystemResolver",
    "Target",
    "is_public",
    "read_body",
]
