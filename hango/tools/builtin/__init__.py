"""The tools that come with hango: one file each, all with the same parts in the same order.

A file has its limits, then ``make_<name>`` with the tool's function inside, then the rest.  Clocks and
resolvers are parameters of ``make_<name>``; no setting can replace them.
"""

from collections.abc import Sequence

from hango.tools.builtin.get_time import make_get_time
from hango.tools.builtin.http_fetch import make_http_fetch
from hango.tools.builtin.todowrite import make_todowrite
from hango.tools.fetch import AllowedHosts
from hango.tools.tool import Tool


def builtin_tools(*, http_fetch_allowed_hosts: Sequence[str]) -> tuple[Tool, ...]:
    """Make all of them.

    Args:
        http_fetch_allowed_hosts: entries as `AllowedHosts` reads them; empty allows none.

    Raises:
        InvalidInput: some entries cannot be read.
    """
    fetch = make_http_fetch(AllowedHosts.parse(http_fetch_allowed_hosts))
    return (make_get_time(), fetch, make_todowrite())


__all__ = ["builtin_tools", "make_get_time", "make_http_fetch", "make_todowrite"]
