"""The settings: `Settings`, and `load`, which reads them from the environment.

Rule: all mistakes are reported at once, in words that say what to do, and no secret is in a message
or a repr.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import attrs
from attrs import field

from hango.config.parsers import (
    API_KEY,
    BASE_URL,
    BIND,
    DATABASE,
    FLAG,
    HOSTS,
    MODULES,
    PATH,
    TEXT,
    Parser,
    T,
    choice,
    duration,
    is_local,
    number,
    show_duration,
    size,
)
from hango.db.url import DatabaseUrl
from hango.domain import defaults
from hango.embedded.data_dir import default_data_dir
from hango.errors import ConfigError

D = TypeVar("D")

_PREFIX = "HANGO_"
# An executor stops a tenth of the lease before its end (rule 4 of the design).
_USABLE_LEASE = 0.9


class ProcessRole(StrEnum):
    """What a process does: answers HTTP, executes runs, or both."""

    ALL = "all"
    WEB = "web"
    WORKER = "worker"


class LogFormat(StrEnum):
    """How log lines look: for people, or one JSON object each."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The least severe log line that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def _env(name: str, parser: Parser[T]) -> Mapping[str, object]:
    """Return the metadata of a field: the variable that sets it, and the parser of its text."""
    return {"name": name, "parser": parser}


def _setting(name: str, parser: Parser[T], default: D, *, secret: bool = False) -> T | D:
    """Declare the field of one setting; a secret one is left out of the repr."""
    return field(default=default, repr=not secret, metadata=_env(name, parser))


@attrs.frozen
class Settings:
    """Everything that can be set.  Durations are seconds, sizes are bytes; None means not set.

    Attributes:
        database_url: a Postgres URL; None is the embedded server, in `data_dir`.
        health_bind: where health and metrics are answered besides; None is only at `bind`.
        max_connections: of HTTP, open at once in this process.
        max_connections_per_peer: of them, from one address; a proxy is one.
        keep_alive: how long an HTTP connection may be idle between two requests.
        run_workers: runs executed at once in this process.
        provider_timeout: silence of a provider's stream.
        max_queued_runs: queued and running, of a session.
        max_tenant_runs: queued and running, of a tenant; 0 is no bound.
        max_running_runs: of a tenant, in all processes; 0 is no bound.
        run_max_reclaims: in a row without progress, before a run fails; 0 is never.
        missing_grace: how long a run waits for a process that has what its agent needs.
        default_provider: of `hango run` and `hango dev`; None chooses by the keys that are set.
        trace_content: whether spans have prompts, answers, arguments and results.
        log_level: None is info for a server, and warning for the other commands.
    """

    database_url: str | None = _setting("HANGO_DATABASE_URL", DATABASE, None, secret=True)
    data_dir: Path = field(factory=default_data_dir, metadata=_env("HANGO_DATA_DIR", PATH))
    pg_bindir: Path | None = _setting("HANGO_PG_BINDIR", PATH, None)
    db_pool_size: int = _setting("HANGO_DB_POOL_SIZE", number(1, 1000), 10)

    bind: str = _setting("HANGO_BIND", BIND, "127.0.0.1:8080")
    health_bind: str | None = _setting("HANGO_HEALTH_BIND", BIND, None)
    role: ProcessRole = _setting("HANGO_ROLE", choice(ProcessRole), ProcessRole.ALL)
    max_body: int = _setting("HANGO_MAX_BODY", size(2**10, 2**30), 2**20)
    # below the 1024 files that a process may commonly open
    max_connections: int = _setting("HANGO_MAX_CONNECTIONS", number(1, 1_000_000), 800)
    max_connections_per_peer: int = _setting(
        "HANGO_MAX_CONNECTIONS_PER_PEER", number(1, 1_000_000), 400
    )
    keep_alive: float = _setting("HANGO_KEEP_ALIVE", duration(1.0), 75.0)

    max_iterations: int = _setting("HANGO_MAX_ITERATIONS", number(1, 10_000), defaults.MAX_ITERATIONS)
    tool_timeout: float = _setting("HANGO_TOOL_TIMEOUT", duration(0.001), defaults.TOOL_TIMEOUT)
    max_tool_calls: int = _setting(
        "HANGO_MAX_TOOL_CALLS_PER_TURN", number(1, 10_000), defaults.MAX_TOOL_CALLS
    )
    # At least a page: below, the notice that a result was cut would be most of it.
    tool_result_limit: int = _setting(
        "HANGO_TOOL_RESULT_LIMIT", size(2**10, 2**26), defaults.TOOL_RESULT_LIMIT
    )
    provider_timeout: float = _setting("HANGO_PROVIDER_TIMEOUT", duration(0.001), 60.0)

    run_deadline: float = _setting("HANGO_RUN_DEADLINE", duration(0.001), defaults.RUN_DEADLINE)
    run_workers: int = _setting("HANGO_RUN_WORKERS", number(1, 100_000), defaults.RUN_WORKERS)
    max_queued_runs: int = _setting("HANGO_MAX_QUEUED_RUNS_PER_SESSION", number(1, 100_000), 20)
    max_tenant_runs: int = _setting("HANGO_MAX_QUEUED_RUNS_PER_TENANT", number(0, 10_000_000), 0)
    max_running_runs: int = _setting("HANGO_MAX_RUNNING_PER_TENANT", number(0, 1_000_000), 0)
    # Below a second, the round trip of a heartbeat is no longer small beside the lease.
    run_lease_ttl: float = _setting("HANGO_RUN_LEASE_TTL", duration(1.0), defaults.RUN_LEASE_TTL)
    run_heartbeat_interval: float = field(metadata=_env("HANGO_RUN_HEARTBEAT_INTERVAL", duration(0.1)))
    run_reclaim_interval: float = _setting(
        "HANGO_RUN_RECLAIM_INTERVAL", duration(0.1), defaults.RUN_RECLAIM_INTERVAL
    )
    run_poll_interval: float = _setting(
        "HANGO_RUN_POLL_INTERVAL", duration(0.1), defaults.RUN_POLL_INTERVAL
    )
    run_max_reclaims: int = _setting("HANGO_RUN_MAX_RECLAIMS", number(0, 1_000_000), 10)
    missing_grace: float = _setting("HANGO_MISSING_GRACE", duration(0.0), defaults.MISSING_GRACE)
    drain_timeout: float = _setting("HANGO_DRAIN_TIMEOUT", duration(0.0), defaults.DRAIN_TIMEOUT)
    session_idle_timeout: float = _setting(
        "HANGO_SESSION_IDLE_TIMEOUT", duration(0.1), defaults.SESSION_IDLE_TIMEOUT
    )

    http_fetch_allowed_hosts: tuple[str, ...] = _setting("HANGO_HTTP_FETCH_ALLOWED_HOSTS", HOSTS, ())
    plugins: tuple[str, ...] = _setting("HANGO_PLUGINS", MODULES, ())
    default_provider: str | None = _setting("HANGO_DEFAULT_PROVIDER", TEXT, None)
    openai_api_key: str | None = _setting("OPENAI_API_KEY", API_KEY, None, secret=True)
    openai_base_url: str | None = _setting("OPENAI_BASE_URL", BASE_URL, None, secret=True)
    openai_model: str | None = _setting("OPENAI_MODEL", TEXT, None)
    anthropic_api_key: str | None = _setting("ANTHROPIC_API_KEY", API_KEY, None, secret=True)
    anthropic_base_url: str | None = _setting("ANTHROPIC_BASE_URL", BASE_URL, None, secret=True)
    anthropic_model: str | None = _setting("ANTHROPIC_MODEL", TEXT, None)

    log_format: LogFormat = _setting("HANGO_LOG_FORMAT", choice(LogFormat), LogFormat.TEXT)
    log_level: LogLevel | None = _setting("HANGO_LOG_LEVEL", choice(LogLevel), None)
    trace_content: bool = _setting("HANGO_TRACE_LLM_CONTENT", FLAG, False)

    @run_heartbeat_interval.default
    def _third_of_lease(self) -> float:
        return self.run_lease_ttl / 3

    @property
    def longest_stall(self) -> float:
        """Seconds the event loop may stand still before the process ends: half a lease."""
        return self.run_lease_ttl / 2

    @property
    def chosen_provider(self) -> str:
        """The provider of `hango run` and `hango dev`: named, else with a key, else ``demo``."""
        if self.default_provider:
            return self.default_provider
        if self.openai_api_key or self.openai_base_url:
            return "openai"
        return "anthropic" if self.anthropic_api_key or self.anthropic_base_url else "demo"

    @property
    def warnings(self) -> tuple[str, ...]:
        """What will work, but hardly as meant; one sentence each."""
        found = []
        if self.database_url is not None:
            left_out = DatabaseUrl.parse(self.database_url).warnings
            found += [f"HANGO_DATABASE_URL: {sentence}" for sentence in left_out]
        if self.drain_timeout < self.provider_timeout + self.tool_timeout:
            found.append(
                "HANGO_DRAIN_TIMEOUT is shorter than HANGO_PROVIDER_TIMEOUT and HANGO_TOOL_TIMEOUT"
                " together: a shutdown may cut turns short, which are then done again"
            )
        if self.run_heartbeat_interval > self.run_lease_ttl / 2:
            found.append(
                "HANGO_RUN_HEARTBEAT_INTERVAL is over half of HANGO_RUN_LEASE_TTL:"
                " one failed heartbeat loses every run of the process"
            )
        if self.role is not ProcessRole.WORKER and not is_local(self.bind):
            found.append(
                "HANGO_BIND can be reached from other machines, and HTTP is not encrypted: API keys can"
                " be read on the way.  Put a proxy with TLS in front, or bind 127.0.0.1; see operate.md"
            )
        return tuple(found)


_FIELDS = {item.metadata["name"]: item for item in attrs.fields(Settings)}


def load(environ: Mapping[str, str]) -> Settings:
    """Read the settings; an empty variable is one that is not set.

    Raises:
        ConfigError: something cannot be used; every mistake is in it.
    """
    values = {}
    problems = []
    for name, item in _FIELDS.items():
        if text := environ.get(name, "").strip():
            try:
                values[item.name] = item.metadata["parser"].read(text)
            except ValueError as error:
                problems.append(f"{name}: {error}")
    settings = Settings(**values)
    problems += [*_contradictions(settings), *_unknown(environ)]
    if problems:
        raise ConfigError(tuple(problems))
    return settings


def effective(settings: Settings) -> Mapping[str, str]:
    """Return every setting as one would write it, by name, secrets hidden; empty if not set."""
    values = {name: getattr(settings, item.name) for name, item in _FIELDS.items()}
    return {
        name: "" if value is None else _FIELDS[name].metadata["parser"].show(value)
        for name, value in values.items()
    }


def _contradictions(settings: Settings) -> list[str]:
    if settings.run_heartbeat_interval < settings.run_lease_ttl * _USABLE_LEASE:
        return []
    lease = show_duration(settings.run_lease_ttl)
    return [f"HANGO_RUN_HEARTBEAT_INTERVAL: must be well below HANGO_RUN_LEASE_TTL, which is {lease}"]


def _unknown(environ: Mapping[str, str]) -> list[str]:
    problems = []
    known = {name.removeprefix(_PREFIX): name for name in _FIELDS}
    for name in sorted(set(environ) - set(_FIELDS)):
        if name.startswith(_PREFIX):
            close = difflib.get_close_matches(name.removeprefix(_PREFIX), known, n=1)
            hint = f"; did you mean {known[close[0]]}?" if close else ""
            problems.append(f"{name}: there is no such setting{hint}")
    return problems
