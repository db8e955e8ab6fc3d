"""Settings: what is read, what is refused, and what is never shown."""

from __future__ import annotations

import re
from pathlib import Path

import attrs
import pytest

from hango.config import LogFormat, LogLevel, ProcessRole, Settings, effective, load
from hango.errors import ConfigError

HUNTED = "hunter2-Secret"


def problems(environ: dict[str, str]) -> tuple[str, ...]:
    """Load what must be refused; return why."""
    with pytest.raises(ConfigError) as refused:
        load(environ)
    return refused.value.problems


def tell(environ: dict[str, str]) -> str:
    """Return all that is ever told of these settings: of them, or of why they are refused."""
    try:
        settings = load(environ)
    except ConfigError as error:
        return f"{error} {error!r} {error.problems}"
    return f"{settings!r} {effective(settings)}"


def test_nothing_set_gives_the_defaults_of_the_design() -> None:
    """An empty environment is enough to start."""
    settings = load({"PATH": "/bin"})
    assert settings == Settings()
    assert settings.bind == "127.0.0.1:8080"
    assert settings.role is ProcessRole.ALL
    assert settings.run_lease_ttl == 90
    assert settings.run_heartbeat_interval == 30
    assert settings.max_body == 1024 * 1024
    assert settings.drain_timeout == 120
    assert settings.chosen_provider == "demo"
    assert not settings.warnings


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("HANGO_RUN_DEADLINE", "90s", "run_deadline", 90.0),
        ("HANGO_RUN_DEADLINE", "2m", "run_deadline", 120.0),
        ("HANGO_RUN_DEADLINE", "1h", "run_deadline", 3600.0),
        ("HANGO_RUN_DEADLINE", "500ms", "run_deadline", 0.5),
        ("HANGO_RUN_DEADLINE", "1.5 m", "run_deadline", 90.0),
        ("HANGO_DRAIN_TIMEOUT", "0s", "drain_timeout", 0.0),
        ("HANGO_MAX_BODY", "64KiB", "max_body", 64 * 1024),
        ("HANGO_MAX_BODY", "2MiB", "max_body", 2 * 1024 * 1024),
        ("HANGO_MAX_CONNECTIONS", "5000", "max_connections", 5000),
        ("HANGO_MAX_CONNECTIONS_PER_PEER", "5000", "max_connections_per_peer", 5000),
        ("HANGO_KEEP_ALIVE", "10m", "keep_alive", 600.0),
        ("HANGO_RUN_MAX_RECLAIMS", "0", "run_max_reclaims", 0),
        ("HANGO_RUN_WORKERS", " 8 ", "run_workers", 8),
        ("HANGO_ROLE", "Worker", "role", ProcessRole.WORKER),
        ("HANGO_LOG_FORMAT", "json", "log_format", LogFormat.JSON),
        ("HANGO_LOG_LEVEL", "DEBUG", "log_level", LogLevel.DEBUG),
        ("HANGO_BIND", "[::1]:0", "bind", "[::1]:0"),
        ("HANGO_BIND", "unix:/run/hango.sock", "bind", "unix:/run/hango.sock"),
        ("HANGO_DATA_DIR", "/var/lib/hango", "data_dir", Path("/var/lib/hango")),
        ("HANGO_DATA_DIR", "~/hango", "data_dir", Path.home() / "hango"),
        ("HANGO_DATA_DIR", "here", "data_dir", Path.cwd() / "here"),
        ("HANGO_PLUGINS", "tools, my_company.more", "plugins", ("tools", "my_company.more")),
        (
            "HANGO_HTTP_FETCH_ALLOWED_HOSTS",
            "example.com,*.example.com localhost:8000",
            "http_fetch_allowed_hosts",
            ("example.com", "*.example.com", "localhost:8000"),
        ),
        (
            "OPENAI_BASE_URL",
            "http://localhost:11434/v1",
            "openai_base_url",
            "http://localhost:11434/v1",
        ),
        (
            "HANGO_DATABASE_URL",
            "postgresql:///hango?host=/run",
            "database_url",
            "postgresql:///hango?host=/run",
        ),
        ("HANGO_RUN_WORKERS", "", "run_workers", 64),
    ],
)
def test_a_value_is_read_in_its_unit(name: str, text: str, field: str, value: object) -> None:
    """Durations become seconds, sizes bytes, lists tuples; blank is not set."""
    assert getattr(load({name: text}), field) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(
            ("HANGO_RUN_DEADLINE", bad)
            for bad in ("90", "s", "-5s", "1e3s", "1d", "nan s", "inf", "0s", "9999999h", "٣s", "1m30")
        ),
        *(("HANGO_MAX_BODY", bad) for bad in ("1000", "1MB", "1.5MiB", "0B", "-1KiB", "999999GiB")),
        *(("HANGO_KEEP_ALIVE", bad) for bad in ("0s", "10", "500ms")),
        *(("HANGO_MAX_CONNECTIONS", bad) for bad in ("0", "-1", "none")),
        *(("HANGO_RUN_WORKERS", bad) for bad in ("0", "-1", "1.5", "many", "1_000", "9" * 5000, "²")),
        *(
            ("HANGO_BIND", bad)
            for bad in ("8080", "host", "host:", ":8080", "host:99999", "http://h:1", "a b:1", "unix:x")
        ),
        *(
            ("HANGO_DATABASE_URL", bad)
            for bad in ("mysql://h/d", "hango", "postgresql://h:port/d", "postgresql://[::1/d")
        ),
        *(
            ("OPENAI_BASE_URL", bad)
            for bad in (
                "api.openai.com",
                "ftp://h/v1",
                "http://",
                "http://h:x/",
                "http://[/",
                "http:///v1",
            )
        ),
        ("OPENAI_API_KEY", "sk-two words"),
        ("OPENAI_API_KEY", "sk-ключ"),
        ("HANGO_RUN_LEASE_TTL", "900ms"),
        ("HANGO_ROLE", "api"),
        ("HANGO_LOG_LEVEL", "loud"),
        ("HANGO_PLUGINS", "tools/mine.py"),
        ("HANGO_PLUGINS", "os;import x"),
        ("HANGO_DATA_DIR", "~nobody-of-that-name/x"),
    ],
)
def test_a_bad_value_is_one_problem_that_names_its_setting(name: str, text: str) -> None:
    """Whatever cannot be read is refused, never taken for something near it."""
    (problem,) = problems({name: text})
    assert problem.startswith(f"{name}: ")
    assert len(problem) < 300 or len(text) > 300


def test_all_mistakes_are_reported_at_once() -> None:
    """Bad values, unknown names and contradictions come together, unknown names with a guess."""
    found = problems(
        {
            "HANGO_RUN_DEADLINE": "soon",
            "HANGO_ROLE": "both",
            "HANGO_DRAIN_TIMEOT": "1m",
            "HANGO_FLUX": "1",
            "HANGO_RUN_LEASE_TTL": "10s",
            "HANGO_RUN_HEARTBEAT_INTERVAL": "10s",
            "OPENAI_ORGANIZATION": "not ours",
        }
    )
    assert len(found) == 5
    text = "\n".join(found)
    assert "HANGO_RUN_DEADLINE: 'soon'" in text
    assert "HANGO_ROLE: 'both' must be one of all, web, worker" in text
    assert "HANGO_DRAIN_TIMEOT: there is no such setting; did you mean HANGO_DRAIN_TIMEOUT?" in text
    assert "HANGO_FLUX: there is no such setting" in text
    assert "HANGO_RUN_HEARTBEAT_INTERVAL: must be well below HANGO_RUN_LEASE_TTL, which is 10s" in text


@pytest.mark.parametrize("beat", ["9s", "10s", "1h"])
def test_a_heartbeat_that_comes_after_the_local_deadline_is_refused(beat: str) -> None:
    """An executor stops a tenth before its lease ends, so a beat must come before that."""
    assert problems({"HANGO_RUN_LEASE_TTL": "10s", "HANGO_RUN_HEARTBEAT_INTERVAL": beat})


def test_what_will_hardly_work_is_a_warning() -> None:
    """A drain shorter than a turn, and a heartbeat without a second chance, start all the same."""
    settings = load({"HANGO_DRAIN_TIMEOUT": "10s", "HANGO_RUN_HEARTBEAT_INTERVAL": "50s"})
    drain, beat = settings.warnings
    assert drain.startswith("HANGO_DRAIN_TIMEOUT")
    assert beat.startswith("HANGO_RUN_HEARTBEAT_INTERVAL")


@pytest.mark.parametrize(
    ("bind", "warned"),
    [
        ("127.0.0.1:80", False),
        ("127.1.2.3:0", False),
        ("localhost:8080", False),
        ("[::1]:8080", False),
        ("unix:/run/hango.sock", False),
        ("0.0.0.0:8080", True),
        ("[::]:8080", True),
        ("10.0.0.5:8080", True),
        ("[2001:db8::1]:80", True),
        ("hango.internal:8080", True),
    ],
)
def test_an_address_that_others_reach_is_a_warning(bind: str, *, warned: bool) -> None:
    """S-M8: keys cross the network readable unless a proxy encrypts them."""
    found = load({"HANGO_BIND": bind}).warnings
    assert [text.split()[0] for text in found] == ["HANGO_BIND"] * warned
    assert not load({"HANGO_BIND": bind, "HANGO_ROLE": "worker"}).warnings


@pytest.mark.parametrize(
    "environ",
    [
        {"HANGO_DATABASE_URL": f"postgresql://user:{HUNTED}@db:5432/hango"},
        {"HANGO_DATABASE_URL": f"postgresql://user:a/b@c:{HUNTED}@db/hango"},
        {"HANGO_DATABASE_URL": f"postgresql://db/hango?user=u&password={HUNTED}"},
        {"HANGO_DATABASE_URL": f"postgresql://db/hango?sslpassword={HUNTED}&sslmode=require"},
        {"HANGO_DATABASE_URL": f"mysql://user:{HUNTED}@db/hango"},
        {"HANGO_DATABASE_URL": f"postgresql://user:{HUNTED}@db:port/hango"},
        {"OPENAI_API_KEY": f"sk-{HUNTED}"},
        {"OPENAI_API_KEY": f"sk-{HUNTED}\nX-Header: injected"},
        {"OPENAI_BASE_URL": f"https://user:{HUNTED}@api.example.com/v1"},
        {"OPENAI_BASE_URL": f"ftp://user:{HUNTED}@api.example.com/v1"},
        {"OPENAI_BASE_URL": f"https://api.example.com/v1?key={HUNTED}"},
    ],
)
def test_a_secret_is_shown_nowhere(environ: dict[str, str]) -> None:
    """Neither the repr, nor what is shown, nor a refusal repeats it."""
    told = tell(environ)
    assert HUNTED not in told
    assert any(word in told for word in ("***", "not a URL", "contains a space", "without guessing"))


def test_what_is_shown_can_be_set_again() -> None:
    """The effective settings, written back, are the same settings: for each kind of value."""
    settings = load(
        {
            "HANGO_RUN_DEADLINE": "90.25s",
            "HANGO_TOOL_TIMEOUT": "1ms",
            "HANGO_RUN_LEASE_TTL": "100s",
            "HANGO_MAX_BODY": "1025B",
            "HANGO_PLUGINS": "a,b.c",
            "HANGO_BIND": "[::]:80",
        }
    )
    shown = {name: text for name, text in effective(settings).items() if text}
    assert shown["HANGO_RUN_DEADLINE"] == "90.25s"
    assert shown["HANGO_TOOL_TIMEOUT"] == "1ms"
    again = load(shown)
    assert again.run_heartbeat_interval == pytest.approx(settings.run_heartbeat_interval)
    assert attrs.evolve(again, run_heartbeat_interval=settings.run_heartbeat_interval) == settings


@pytest.mark.parametrize(
    ("environ", "provider"),
    [
        ({}, "demo"),
        ({"OPENAI_API_KEY": "sk-1"}, "openai"),
        ({"OPENAI_BASE_URL": "http://localhost:11434/v1"}, "openai"),
        ({"ANTHROPIC_API_KEY": "sk-1"}, "anthropic"),
        ({"ANTHROPIC_BASE_URL": "http://localhost:11434"}, "anthropic"),
        ({"ANTHROPIC_API_KEY": "sk-1", "OPENAI_API_KEY": "sk-2"}, "openai"),
        ({"OPENAI_API_KEY": "sk-1", "HANGO_DEFAULT_PROVIDER": "mine"}, "mine"),
    ],
)
def test_the_provider_is_the_named_one_else_the_one_with_a_key(
    environ: dict[str, str], provider: str
) -> None:
    """`hango run` works without a key, and uses the key that is there."""
    assert load(environ).chosen_provider == provider


def test_the_reference_lists_exactly_these_settings() -> None:
    """What can be set is documented, and nothing else is."""
    reference = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
    listed = re.findall(r"^\| `([A-Z_]+)`", reference.read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(effective(Settings()))
