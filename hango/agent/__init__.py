"""The agent loop: think, act, observe, until the model is done or something stops it.

Pure: it imports neither actors nor store, and sees the world through `hango.agent.ports`.
"""

from hango.agent.loop import AgentLoop, LoopLimits
from hango.agent.ports import EventSink, Provider, RunOptions, Toolbox, Transcript

__all__ = [
    "AgentLoop",
    "EventSink",
    "LoopLimits",
    "Provider",
    "RunOptions",
    "Toolbox",
    "Transcript",
]
