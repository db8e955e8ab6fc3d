"""TLS to the database: which settings there are, and whether their files can be used.

asyncpg makes the context, at each connect, so that certificates may be replaced while hango runs.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path

SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")

SYSTEM = "system"
"""As ``sslrootcert``: whoever the system trusts."""

_VERIFY = ("verify-ca", "verify-full")
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")


def check_files(tls: Mapping[str, str]) -> Iterator[str]:
    """Say what is wrong with the files that *tls* (libpq's parameters) names; no file is changed."""
    mode, root = tls["sslmode"], tls.get("sslrootcert")
    if mode == "disable":
        return
    if root == SYSTEM and mode != "verify-full":
        yield "sslrootcert=system needs sslmode=verify-full: any host can get some certificate"
    if mode in _VERIFY and not root and not (default_folder() / "root.crt").is_file():
        yield (
            f"sslmode={mode} needs to know who signed the server's certificate: give sslrootcert="
            "/path/root.crt (your provider's), or sslrootcert=system for those that the system trusts"
        )
    problems = [problem for name in _FILES for problem in _check_file(name, tls.get(name))]
    yield from problems or _check_contents(tls)


def default_folder() -> Path:
    """Return where libpq looks for files that are not named."""
    try:
        return Path.home() / ".postgresql"
    except (RuntimeError, KeyError):
        return Path("/nonexistent")


def system_context(tls: Mapping[str, str]) -> ssl.SSLContext:
    """Trust whom the system trusts, and check the name; asyncpg has no word for that."""
    context = ssl.create_default_context()
    if certificate := tls.get("sslcert"):
        context.load_cert_chain(certificate, _key(tls), lambda: tls.get("sslpassword", ""))
    context.set_alpn_protocols(["postgresql"])
    return context


def _check_file(name: str, path: str | None) -> Iterator[str]:
    if not path or path == SYSTEM:
        return
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        yield f"{name}: {path} cannot be read: {error.strerror}"


def _check_contents(tls: Mapping[str, str]) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for name in ("sslrootcert", "sslcrl"):
        if (path := tls.get(name)) and path != SYSTEM:
            try:
                context.load_verify_locations(path)
            except (OSError, ValueError):
                yield f"{name}: {path} holds nothing that can be read as PEM"
    if certificate := tls.get("sslcert"):
        key = _key(tls)
        try:
            context.load_cert_chain(certificate, key, lambda: tls.get("sslpassword", ""))
        except (OSError, ValueError):
            yield f"sslcert: {certificate} and the key {key} do not fit, or sslpassword is wrong"


def _key(tls: Mapping[str, str]) -> str | Path:
    return tls.get("sslkey") or default_folder() / "postgresql.key"
