"""The database URL: the one place that reads it.

What `libpq <https://www.postgresql.org/docs/current/libpq-connect.html>`_ takes is understood, or left
out with a warning; what other clients have made up is refused by name.  Nothing is resolved or opened
but the files that the URL names.

Rule: no part of a password is in a message, also not where the password was not percent-encoded and so
looks like a host, a path or a parameter.
"""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote

import attrs

from hango.db.url.endpoints import Endpoint, Keepalive
from hango.db.url.libpq_files import find_password, read_service
from hango.db.url.parameters import ENVIRONMENT, INSTEAD, LEFT_OUT, UNDERSTOOD
from hango.db.url.tls import SSL_MODES, check_files
from hango.errors import ConfigError

_EXAMPLE = "postgresql://user:password@host:5432/database"
_URL = re.compile(
    r"postgres(?:ql)?://(?P<authority>[^/?#]*)(?:/(?P<path>[^?#]*))?(?:\?(?P<query>.*))?", re.DOTALL
)
_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%\w+)?)\]|(?P<name>[^:\[\]]*))(?::(?P<port>\d*))?")
_NAME = re.compile(r"[\w.-]{1,253}")
_HIGHEST_PORT = 65535
_SOCKET_FOLDERS = ("/run/postgresql", "/var/run/postgresql", "/tmp")  # noqa: S108 - libpq's own

_PRIMARY = ("read-write", "primary")
_ATTRIBUTES = (*_PRIMARY, "any")


@attrs.frozen
class DatabaseUrl:
    """A database, and how to get in.

    Attributes:
        endpoints: where to try, in this order; not empty.
        password: None when there is none.
        tls: libpq's parameters that begin with ``ssl``.
        primary: only a server that takes writes will do.
        application_name: how connections are shown in ``pg_stat_activity``.
        options: command-line options for the server; may be empty.
        connect_timeout: seconds for each endpoint; None for the caller's choice.
        kerberos: ``krbsrvname`` and ``gsslib``, where given.
        warnings: what was left out, one sentence each.
    """

    endpoints: tuple[Endpoint, ...]
    user: str
    password: str | None = attrs.field(repr=False)
    database: str
    tls: Mapping[str, str] = attrs.field(repr=False)
    primary: bool
    application_name: str
    options: str
    connect_timeout: float | None
    keepalive: Keepalive
    kerberos: Mapping[str, str]
    warnings: tuple[str, ...]

    def __str__(self) -> str:
        """Say where it is, without anything secret."""
        return ", ".join(map(str, self.endpoints))

    @classmethod
    def parse(cls, text: str, environ: Mapping[str, str] | None = None) -> DatabaseUrl:
        """Read a URL; what it does not say is taken from the ``PG*`` variables of *environ*.

        Raises:
            ConfigError: it cannot be used; every mistake is in it, and nothing secret.
        """
        environ = os.environ if environ is None else environ
        given = _split(text)
        problems = list(_unknown(given))
        values = {**_defaults(given, environ), **given}
        reader = _Reader(values, problems)
        url = reader.read(tuple(_left_out(given)))
        if problems:
            raise ConfigError(tuple(problems))
        return url


def _split(text: str) -> dict[str, str]:
    """Take the URL apart, into libpq's parameters.

    Raises:
        ConfigError: it is no such URL, or part of a password may be where it does not belong.
    """
    match = _URL.fullmatch(text)
    if match is None or re.search(r"[\0-\x1f\x7f]", text):
        raise ConfigError((_not_a_url(text),))
    authority, path, query = match["authority"], match["path"] or "", match["query"] or ""
    login, at, hosts = authority.rpartition("@")
    if "@" in login or "@" in path or ("@" in query and not at) or "#" in text:
        raise ConfigError((_ENCODE,))
    user, _, password = login.partition(":")
    parameters = dict(_parameters(query))
    parts = {"user": user, "password": password, "dbname": path}
    parts = {name: unquote(value) for name, value in parts.items() if value}
    return {**parts, **_split_hosts(hosts), **parameters}


_ENCODE = (
    "cannot be read without guessing: in a password (as in every other part) write @ as %40, # as %23, "
    "/ as %2F, ? as %3F and : as %3A"
)


def _not_a_url(text: str) -> str:
    if "#" in text:
        return _ENCODE
    return f"not a URL such as {_EXAMPLE}"


def _split_hosts(hosts: str) -> dict[str, str]:
    """Return ``host`` and ``port`` as libpq has them: lists with commas."""
    if not hosts:
        return {}
    names, ports = [], []
    for part in hosts.split(","):
        match = _HOST.fullmatch(part)
        if match is None:
            raise ConfigError((f"not a URL such as {_EXAMPLE}: its host cannot be read",))
        names.append(match["v6"] or unquote(match["name"]))
        ports.append(match["port"] or "")
    return {"host": ",".join(names)} | ({"port": ",".join(ports)} if any(ports) else {})


def _parameters(query: str) -> Iterator[tuple[str, str]]:
    for part in filter(None, query.split("&")):
        name, equals, value = part.partition("=")
        if not equals:
            raise ConfigError(("what follows the ? must read name=value&name=value",))
        yield unquote(name), unquote(value)


def _unknown(given: Mapping[str, str]) -> Iterator[str]:
    for name in given:
        if name not in UNDERSTOOD and name not in LEFT_OUT:
            instead = INSTEAD.get(name, "leave it out")
            yield f"{name[:60]!r} is not a parameter of a PostgreSQL URL: {instead}"


def _left_out(given: Mapping[str, str]) -> Iterator[str]:
    for name, value in given.items():
        if name in LEFT_OUT and value not in LEFT_OUT[name]:
            yield f"{name} is left out: hango's driver does not know it"
    if "host" in given and "hostaddr" in given:
        yield "hostaddr is left out: hango looks the host up itself"


def _defaults(given: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return what the service file and the environment say."""
    found = {name: environ[key] for name, key in ENVIRONMENT.items() if environ.get(key)}
    service = given.get("service") or found.get("service")
    return {**found, **(read_service(service, environ) if service else {})}


@attrs.frozen
class _Reader:
    """Makes values of texts; what cannot be read is a problem, and read as its default."""

    values: Mapping[str, str]
    problems: list[str]

    def read(self, warnings: tuple[str, ...]) -> DatabaseUrl:
        """Read all there is."""
        endpoints = self._endpoints()
        user = self._text("user") or getpass.getuser()
        database = self._text("dbname") or user
        tls = self._tls(endpoints)
        return DatabaseUrl(
            endpoints=endpoints,
            user=user,
            password=self.values.get("password")
            or find_password(self.values.get("passfile"), endpoints, database, user),
            database=database,
            tls=tls,
            primary=self._primary(endpoints),
            application_name=self._text("application_name")
            or self._text("fallback_application_name")
            or "hango",
            options=self._text("options"),
            connect_timeout=float(self._number("connect_timeout", 0)) or None,
            keepalive=self._keepalive(),
            kerberos={n: v for n in ("krbsrvname", "gsslib") if (v := self._text(n))},
            warnings=warnings,
        )

    def _endpoints(self) -> tuple[Endpoint, ...]:
        hosts = list(filter(None, self._text("host", self._text("hostaddr")).split(",")))
        ports = self._text("port").split(",")
        if not hosts:
            hosts = [folder for folder in _SOCKET_FOLDERS if Path(folder).is_dir()] + ["localhost"]
            ports = ports[:1]
        if len(ports) == 1:
            ports *= len(hosts)
        if len(ports) != len(hosts):
            self.problems.append(f"there are {len(hosts)} hosts and {len(ports)} ports")
        return tuple(self._endpoint(host, port) for host, port in zip(hosts, ports, strict=False))

    def _endpoint(self, host: str, port: str) -> Endpoint:
        if not host.startswith("/") and ":" not in host and not _NAME.fullmatch(host):
            self.problems.append("a host is a name, an address, or the folder of a socket")
        if port and not (re.fullmatch(r"[0-9]{1,5}", port) and 0 < int(port) <= _HIGHEST_PORT):
            self.problems.append(f"a port is a number from 1 to {_HIGHEST_PORT}")
            port = ""
        return Endpoint(host, int(port or "5432"))

    def _tls(self, endpoints: tuple[Endpoint, ...]) -> Mapping[str, str]:
        """Return how to encrypt; a Unix socket is not encrypted, whatever the parameters say."""
        if all(endpoint.is_socket for endpoint in endpoints):
            return {"sslmode": "disable"}
        tls = {name: value for name, value in self.values.items() if name.startswith("ssl")}
        tls = {name: value for name, value in tls.items() if value and name in UNDERSTOOD}
        if tls.pop("ssl", "") in {"true", "1", "on", "yes"}:  # as JDBC has it; so does libpq
            tls.setdefault("sslmode", "require")
        system = tls.get("sslrootcert") == "system"
        mode = tls.setdefault("sslmode", "verify-full" if system else "prefer")
        if mode not in SSL_MODES:
            self.problems.append(f"sslmode: {mode[:60]!r} is none of {', '.join(SSL_MODES)}")
        else:
            self.problems.extend(check_files(tls))
        return tls

    def _primary(self, endpoints: tuple[Endpoint, ...]) -> bool:
        """Tell whether to pass over standbys; as a rule where there are several servers to try."""
        wanted = self._text("target_session_attrs") or ("any", "primary")[len(endpoints) > 1]
        if wanted not in _ATTRIBUTES:
            self.problems.append(
                f"target_session_attrs: hango writes, so it is one of {', '.join(_ATTRIBUTES)}"
            )
        return wanted in _PRIMARY

    def _keepalive(self) -> Keepalive:
        if self._text("keepalives", "1") == "0":
            return Keepalive(idle=0)
        usual = Keepalive()
        return Keepalive(
            self._number("keepalives_idle", 0) or usual.idle,
            self._number("keepalives_interval", 0) or usual.interval,
            self._number("keepalives_count", 0) or usual.count,
            self._number("tcp_user_timeout", 0) / 1000 or usual.user_timeout,
        )

    def _text(self, name: str, default: str = "") -> str:
        return self.values.get(name) or default

    def _number(self, name: str, default: int) -> int:
        text = self._text(name, str(default))
        if re.fullmatch(r"-?[0-9]{1,9}", text):
            return max(int(text), 0)
        self.problems.append(f"{name}: {text[:60]!r} is not a whole number")
        return default
