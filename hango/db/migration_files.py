"""The migrations as files, and whether a database's history fits them.

One rule: no I/O but reading the files; what a database has is handed in as values.
Used by `hango.db.migrations` only.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.resources.abc import Traversable

import attrs

from hango.errors import MigrationError

_NAME = re.compile(r"(?P<number>\d{4})_[a-z0-9]+(_[a-z0-9]+)*\.sql", re.ASCII)
_COMMENT = re.compile(r"--[^\n]*")
_TRANSACTION_CONTROL = re.compile(
    r"(\A|;)\s*(begin|start\s+transaction|commit|rollback)\s*;", re.IGNORECASE | re.ASCII
)


@attrs.frozen
class Migration:
    r"""One file.

    Attributes:
        number: 1 for the first; no gaps.
        name: file name without ``.sql``, such as ``0001_initial``.
        sql: its text; lines end in ``\n`` however it was checked out.
    """

    number: int
    name: str
    sql: str

    @property
    def sha256(self) -> str:
        """Hex digest of the text: what a database remembers it by."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


@attrs.frozen
class AppliedMigration:
    """One row of a database's history.

    Attributes:
        applied_at: database clock, with time zone.
    """

    number: int
    name: str
    sha256: str
    applied_at: datetime


def read_migrations(folder: Traversable) -> tuple[Migration, ...]:
    """Read every migration in *folder*, in order; hidden files are no migrations.

    Raises:
        MigrationError: a file with another kind of name, a number missing or used twice, an empty
            file, one that is not UTF-8, or one that begins or ends transactions; names the file.
    """
    names = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    migrations = tuple(_read_migration(folder.joinpath(name)) for name in names)
    for expected, migration in enumerate(migrations, start=1):
        if migration.number < expected:
            raise MigrationError(f"{migration.name}.sql: number {migration.number:04} is used twice")
        if migration.number > expected:
            raise MigrationError(f"{migration.name}.sql: there is no migration {expected:04} before it")
    return migrations


def _read_migration(file: Traversable) -> Migration:
    match = _NAME.fullmatch(file.name)
    if match is None:
        raise MigrationError(f"{file.name}: a migration is named like 0001_what_it_does.sql")
    try:
        sql = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MigrationError(f"{file.name}: cannot be read: {error}") from error
    if not sql.strip():
        raise MigrationError(f"{file.name}: is empty")
    if _TRANSACTION_CONTROL.search(_COMMENT.sub("", sql)):
        raise MigrationError(
            f"{file.name}: runs in a transaction already, and may not begin or end one"
        )
    return Migration(int(match["number"]), file.name.removesuffix(".sql"), sql)


def check_history(migrations: Sequence[Migration], applied: Mapping[int, AppliedMigration]) -> None:
    """Check that *applied*, by number, is a beginning of *migrations*.

    Raises:
        MigrationError: the database is newer than the files, an applied file was edited, renamed
            or left out; names the file.
    """
    for number, row in applied.items():
        if number > len(migrations):
            raise MigrationError(
                f"{row.name}.sql: the database has it, this hango does not: a newer version has "
                "migrated it.  Upgrade hango; migrations do not go backwards"
            )
    for migration in migrations[: max(applied, default=0)]:
        _check_applied(migration, applied.get(migration.number))


def _check_applied(migration: Migration, row: AppliedMigration | None) -> None:
    if row is None:
        raise MigrationError(f"{migration.name}.sql: was left out, though later ones were applied")
    if row.name != migration.name:
        raise MigrationError(f"{migration.name}.sql: the database knows this number as {row.name}")
    if row.sha256 != migration.sha256:
        raise MigrationError(
            f"{migration.name}.sql: was edited after it was applied here on {row.applied_at:%Y-%m-%d}."
            "  Restore it, and put the change into a new migration"
        )
