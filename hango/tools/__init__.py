"""Tools: what they are, how they are registered, and the one place where they are called.

Rule: a tool runs only through a `ToolSet`, which holds the allow-list at the call, turns everything
that goes wrong into an error result, and starts an unsafe call once, however often its turn is driven.
The agent loop knows views as its ``Toolbox``.
"""

from hango.threads import Threads
from hango.tools.builtin import builtin_tools
from hango.tools.fetch import AllowedHosts
from hango.tools.registry import Registry, ToolSet
from hango.tools.tool import Tool, tool
from hango.tools.toolkit import Toolkit

__all__ = ["AllowedHosts", "Registry", "Threads", "Tool", "ToolSet", "Toolkit", "builtin_tools", "tool"]
