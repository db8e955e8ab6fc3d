"""The HTTP server: accepts connections, and serves each with hypercorn in a task of its own.

From the outside in: `listen` (the socket), `accept` (the loop), `limits` (how many, how long),
`connection` (one of them), `http1` (what is a request), `middleware` (what the application is given).
"""

from hango.web.server.accept import serve
from hango.web.server.limits import ConnectionLimits

__all__ = ["ConnectionLimits", "serve"]
