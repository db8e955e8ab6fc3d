"""The default data folder; apart from the files that need a POSIX system, since settings use it."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def default_data_dir() -> Path:
    """Return the user's data folder; for root one that the server's user can enter, too."""
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return Path("/var/lib/hango")
    return platformdirs.user_data_path("hango", appauthor=False)
