"""Where the SQL files are: the queries and the migrations.

One rule: nobody else knows that a checkout keeps them beside the package and a wheel inside it.
Used by `hango.store.queries` and `hango.store.migrations`.
"""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path


def sql_folder() -> Traversable:
    """Return the folder that holds ``migrations`` and ``queries``.

    Raises:
        FileNotFoundError: this installation has no such folder; it is damaged.
    """
    inside = files("hango").joinpath("sql")
    if inside.is_dir():
        return inside
    beside = Path(__file__).parents[2] / "sql"
    if beside.is_dir():
        return beside
    raise FileNotFoundError(
        f"hango's SQL files are neither in {inside} nor in {beside}: reinstall hango"
    )
