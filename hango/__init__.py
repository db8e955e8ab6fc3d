"""hango: an actor-model runtime on trio that runs AI agents durably in Postgres.

What is exported here is for users of hango and stays; everything else may change.
"""

from hango.domain import Effects, Result, ToolContext
from hango.plugins import Plugins
from hango.tools import Tool, tool

__all__ = ["Effects", "Plugins", "Result", "Tool", "ToolContext", "tool"]
