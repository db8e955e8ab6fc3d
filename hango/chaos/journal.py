"""The journal: what the model and the tools really did, in a file that outlives their processes.

Rule: an entry is one write to a file opened for appending, made before anything else can see what it
tells.  So a process that is killed has written all it did, and lines of processes do not mix.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import attrs


class EntryKind(StrEnum):
    """What an entry records."""

    ASKED = "asked"  # the model began an answer
    REFUSED = "refused"  # the model refused a request with an error that is retried
    BEGAN = "began"  # a tool function began
    DONE = "done"  # a tool function has its result
    COUNTED = "counted"  # a counter of hango was raised


@attrs.frozen
class Entry:
    """One line.

    Attributes:
        subject: of the model, the tag of the run's script; of a tool, the run's id; else the counter.
        turn, call: which turn, and the call's place in it, from 0.
        since: when the pass of the event loop began in which it happened (wall clock, seconds).  A
            process may be frozen within a pass; only in the next can it know how late it is.
        at: when it happened (wall clock, seconds).
        mark: of a result, its text, which no other result has; of a counter, by how much.
    """

    kind: EntryKind
    subject: str
    turn: int = 0
    call: int = 0
    since: float = 0.0
    at: float = 0.0
    mark: str = ""


@attrs.frozen
class Timeline:
    """A file in which people can read when what was done to which worker."""

    path: Path

    def write(self, text: str) -> None:
        """Append a line, with the time."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{time.time():.2f} {text}\n")


@attrs.define
class Journal:
    """The file *path*; opened at the first write."""

    path: Path
    _file: int | None = None

    def write(self, entry: Entry) -> None:
        """Append *entry*."""
        if self._file is None:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(self._file, json.dumps(attrs.astuple(entry)).encode() + b"\n")

    def read(self) -> Sequence[Entry]:
        """Return all entries in the order they were written; none before the first write."""
        if not self.path.exists():
            return []
        lines = self.path.read_text("utf-8").splitlines()
        return [Entry(EntryKind(kind), *rest) for kind, *rest in map(json.loads, lines)]
