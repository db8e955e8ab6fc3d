"""A copy of the Postgres programs, for when the server's user may not enter their folder.

This makes a virtual environment below ``/root`` work.  The copy belongs to root, so that no other user
can replace programs in it; it is made once for each version of the original, and renamed into place
when it is complete.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from hango.embedded.os_user import OsUser
from hango.errors import EmbeddedPostgresError

# A cache: deleted copies are made again.
COPIES = Path("/var/cache/hango")

_PARTS = ("bin", "lib", "share")  # headers and manuals are not copied
_UNUSED = shutil.ignore_patterns("doc", "man", "*.a", "pgxs", "__pycache__")


def relocate(bindir: Path, os_user: OsUser) -> Path:
    """Return the folder of programs of a copy of *bindir*'s Postgres that *os_user* can reach.

    Raises:
        EmbeddedPostgresError: *bindir* is not in a relocatable Postgres, or cannot be copied.
    """
    prefix = bindir.parent
    if not any((prefix / "share" / name / "postgres.bki").exists() for name in ("", "postgresql")):
        raise EmbeddedPostgresError(
            f"Postgres runs as user {os_user.name}, since root may not run it, and {os_user.name} "
            f"may not enter {bindir}"
        )
    try:
        copy = COPIES / f"postgres-{_fingerprint(bindir / 'postgres')}"
        _make_folder_of_root(COPIES)
        if not copy.exists():
            _copy_whole(prefix, copy)
    except OSError as error:
        raise EmbeddedPostgresError(
            f"Postgres runs as user {os_user.name}, since root may not run it; {os_user.name} may not "
            f"enter {bindir}, and it cannot be copied to {COPIES}: {error}"
        ) from error
    return copy / prefix.parent.name / prefix.name / bindir.name


def _fingerprint(program: Path) -> str:
    """Return a name for this build; another version at the same path gets another one."""
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
        raise PermissionError(f"{path} must belong to root and be writable by root only")


def _copy_whole(prefix: Path, copy: Path) -> None:
    """Copy to a temporary folder, then rename; if another process was first, use its copy."""
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=copy.parent) as name:
        partial = Path(name) / "copy"
        target = partial / prefix.parent.name / prefix.name
        for part in _PARTS:
            if (prefix / part).is_dir():
                shutil.copytree(
                    prefix / part, target / part, ignore=_UNUSED, ignore_dangling_symlinks=True
                )
        # a wheel has its bundled libraries in a folder beside the package, and finds them from there
        beside = prefix.parent.with_name(f"{prefix.parent.name}.libs")
        if beside.is_dir():
            shutil.copytree(beside, partial / beside.name)
        _let_read([partial, *partial.rglob("*")])
        os.sync()  # the files must be on disk before the rename is
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
