"""A copy of Postgres for when root keeps the programs where the server's user may not go.

One rule: the copy is root's, complete or absent, and made once for each version of the original: an
environment below ``/root`` works, and nobody else can put programs in the way.
Used within this package only.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from hango.embedded.os_user import Account
from hango.errors import EmbeddedPostgresError

# A cache: what is lost here is made again.
COPIES = Path("/var/cache/hango")

_PARTS = ("bin", "lib", "share")  # headers and manuals stay behind
_UNUSED = shutil.ignore_patterns("doc", "man", "*.a", "pgxs", "__pycache__")


def relocate(bindir: Path, account: Account) -> Path:
    """Return the folder of programs of a copy of *bindir*'s Postgres that *account* can reach.

    Raises:
        EmbeddedPostgresError: *bindir* is no part of a Postgres that can be moved, or cannot be copied.
    """
    prefix = bindir.parent
    if not any((prefix / "share" / name / "postgres.bki").exists() for name in ("", "postgresql")):
        raise EmbeddedPostgresError(
            f"user {account.name}, who runs Postgres because root cannot, may not enter {bindir}"
        )
    try:
        copy = COPIES / f"postgres-{_fingerprint(bindir / 'postgres')}"
        _make_folder_of_root(COPIES)
        if not copy.exists():
            _copy_whole(prefix, copy)
    except OSError as error:
        raise EmbeddedPostgresError(
            f"user {account.name}, who runs Postgres because root cannot, may not enter {bindir}, and "
            f"it cannot be copied to {COPIES}: {error}"
        ) from error
    return copy / prefix.parent.name / prefix.name / bindir.name


def _fingerprint(program: Path) -> str:
    """Name this build: another version in the same place is another copy."""
    found = program.stat()
    text = f"{program.resolve()} {found.st_size} {found.st_mtime_ns}"
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:16]


def _make_folder_of_root(path: Path) -> None:
    for folder in [*reversed(path.parents), path]:
        if not folder.exists():
            folder.mkdir(exist_ok=True)
            folder.chmod(0o755)
    found = path.lstat()
    if found.st_uid != 0 or found.st_mode & 0o022:
        raise PermissionError(f"{path} is not root's alone")


def _copy_whole(prefix: Path, copy: Path) -> None:
    """Copy aside, then rename; whoever is first makes the copy, the others use it."""
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=copy.parent) as name:
        partial = Path(name) / "copy"
        target = partial / prefix.parent.name / prefix.name
        for part in _PARTS:
            if (prefix / part).is_dir():
                shutil.copytree(
                    prefix / part, target / part, ignore=_UNUSED, ignore_dangling_symlinks=True
                )
        # wheels keep the libraries they bring in a folder beside the package, and find them from there
        beside = prefix.parent.with_name(f"{prefix.parent.name}.libs")
        if beside.is_dir():
            shutil.copytree(beside, partial / beside.name)
        _let_read([partial, *partial.rglob("*")])
        os.sync()  # a rename that survives a power cut shall have its files with it
        _rename_unless_there(partial, copy)


def _let_read(paths: Iterable[Path]) -> None:
    for path in paths:
        runs = path.is_dir() or path.stat().st_mode & 0o100
        path.chmod(0o755 if runs else 0o644)


def _rename_unless_there(partial: Path, copy: Path) -> None:
    try:
        partial.rename(copy)
    except OSError:
        if not copy.exists():
            raise
