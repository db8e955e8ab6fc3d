"""The journal: what the model and the tools really did, written so that it outlives them.

One rule: an entry is one write to a file opened for appending, made before whatever it tells of can be
observed by anybody else; so a process that is killed has written all it did, and lines do not mix.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import attrs


class What(StrEnum):
    """What an entry tells of."""

    ASKED = "asked"  # the model began an answer
    REFUSED = "refused"  # the model refused a request, as one that may be repeated
    BEGAN = "began"  # a tool's body began
    DONE = "done"  # a tool's body came to its result
    COUNTED = "counted"  # a counter of hango's was raised


@attrs.frozen
class Entry:
    """One line.

    Attributes:
        subject: of the model, the tag of the run's script; of a tool, the run's id; else the counter.
        turn, call: which; the call's place in the turn, from 0.
        since: when the pass of the event loop began in which it happened (wall clock, seconds).  A
            process may have been frozen in it; what it does in its next pass, it does knowing the time.
        at: when it happened (wall clock, seconds).
        mark: of a result, its text, which no other result has; of a counter, by how much.
    """

    what: What
    subject: str
    turn: int = 0
    call: int = 0
    since: float = 0.0
    at: float = 0.0
    mark: str = ""


@attrs.define
class Journal:
    """The file *path*; opened when it is first written to."""

    path: Path
    _file: int | None = None

    def write(self, entry: Entry) -> None:
        """Append *entry*."""
        if self._file is None:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(self._file, json.dumps(attrs.astuple(entry)).encode() + b"\n")

    def read(self) -> Sequence[Entry]:
        """Return all entries, in the order they were written; none before the first."""
        if not self.path.exists():
            return []
        lines = self.path.read_text("utf-8").splitlines()
        return [Entry(What(what), *rest) for what, *rest in map(json.loads, lines)]
