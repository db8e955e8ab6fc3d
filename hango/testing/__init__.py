"""What users of hango test with; part of what hango promises, and used by its own tests.

One rule: a fake stands at the edge, where the network would be, and everything inside is real.
"""

from hango.agent.memory import MemoryLedger
from hango.testing.provider import FakeProvider, Script
from hango.testing.requests import check_request
from hango.testing.scripts import (
    Answer,
    answer,
    broken,
    call,
    failing,
    hanging,
    text,
    thinking,
    waiting,
)

__all__ = [
    "Answer",
    "FakeProvider",
    "MemoryLedger",
    "Script",
    "answer",
    "broken",
    "call",
    "check_request",
    "failing",
    "hanging",
    "text",
    "thinking",
    "waiting",
]
