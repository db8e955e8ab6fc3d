"""Tools: how they are made, registered and called.

Rule: a tool runs only through a `ToolSet`.  It checks the allow-list at each call, turns every failure
into an error result, and starts an unsafe call once, however often its turn is tried.  To the agent
loop it is the ``Toolbox``.
"""

from hango.threads import Threads
from hango.tools.builtin import builtin_tools
from hango.tools.fetch import AllowedHosts
from hango.tools.registry import Registry, ToolSet
from hango.tools.tool import Tool, tool
from hango.tools.toolkit import Toolkit

__all__ = ["AllowedHosts", "Registry", "Threads", "Tool", "ToolSet", "Toolkit", "builtin_tools", "tool"]
