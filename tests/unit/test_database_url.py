"""The database URL: libpq's parameters, several hosts, files, and nothing secret in a message."""

from __future__ import annotations

from pathlib import Path

import pytest

from hango.config import load
from hango.db.url import DatabaseUrl
from hango.errors import ConfigError

SECRET = "Tr0ub4dor"  # noqa: S105 - it must not be shown
U = "postgresql://u@h/d"


@pytest.fixture(autouse=True)
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a home without any file of libpq's, and no variable of its."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGDATABASE", "PGSSLMODE", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)


def hosts(text: str) -> list[str]:
    """Return where a URL leads."""
    return [str(endpoint) for endpoint in DatabaseUrl.parse(text, {}).endpoints]


def password(text: str, environ: dict[str, str]) -> str | None:
    """Return the password of a URL."""
    return DatabaseUrl.parse(text, environ).password


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgres://u@h/d", ["h:5432"]),
        ("postgresql://u@h1:1,h2:2/d", ["h1:1", "h2:2"]),
        ("postgresql://u@h1,h2:2/d", ["h1:5432", "h2:2"]),
        ("postgresql://u@/d?host=h1,h2&port=1,2", ["h1:1", "h2:2"]),
        ("postgresql://u@/d?host=h1,h2&port=7", ["h1:7", "h2:7"]),
        ("postgresql://u@[::1]:7,[2001:db8::1]/d", ["[::1]:7", "[2001:db8::1]:5432"]),
        ("postgresql:///d?host=/run/x", ["/run/x"]),
        ("postgresql://u@%2Frun%2Fx/d", ["/run/x"]),
        ("postgresql://u@/d?hostaddr=10.0.0.1", ["10.0.0.1:5432"]),
    ],
)
def test_hosts_are_read_as_libpq_reads_them(text: str, expected: list[str]) -> None:
    """N19: several of them, too."""
    assert hosts(text) == expected


def test_where_there_are_several_servers_the_primary_is_wanted() -> None:
    """N19: hango writes; one server alone is taken as it is."""
    assert not DatabaseUrl.parse(U, {}).primary
    assert DatabaseUrl.parse("postgresql://u@a,b/d", {}).primary
    assert DatabaseUrl.parse(f"{U}?target_session_attrs=read-write", {}).primary
    assert not DatabaseUrl.parse("postgresql://u@a,b/d?target_session_attrs=any", {}).primary


def test_login_and_name_are_decoded_as_libpq_decodes_them() -> None:
    """A plus is a plus."""
    url = DatabaseUrl.parse("postgresql://a%40b:p%2Fw%3A+@h/my%20d%3F", {})
    assert (url.user, url.password, url.database) == ("a@b", "p/w:+", "my d?")
    assert password("postgresql://h/d?user=u&password=a+b%26", {}) == "a+b&"


@pytest.mark.parametrize(
    ("query", "left_out"),
    [
        ("sslmode=require&channel_binding=require", ["channel_binding"]),
        ("channel_binding=prefer&gssencmode=disable&sslsni=1&load_balance_hosts=disable", []),
        ("gssencmode=require&require_auth=scram-sha-256", ["gssencmode", "require_auth"]),
        (
            "connect_timeout=10&keepalives_idle=30&keepalives=1&application_name=x&options=-c%20a%3Db",
            [],
        ),
        ("ssl=true", []),
    ],
)
def test_parameters_of_libpq_are_understood_or_left_out(query: str, left_out: list[str]) -> None:
    """N18: a URL as managed servers hand it out works, and says what is not done."""
    warnings = DatabaseUrl.parse(f"{U}?{query}", {}).warnings
    assert [warning.split()[0] for warning in warnings] == left_out
    settings = load({"HANGO_DATABASE_URL": f"{U}?{query}"})
    assert len(settings.warnings) == len(left_out)
    assert all(warning.startswith("HANGO_DATABASE_URL: ") for warning in settings.warnings)


def test_what_is_understood_has_an_effect() -> None:
    """N18: none of it becomes a setting of the server by mistake."""
    url = DatabaseUrl.parse(
        f"{U}?ssl=true&connect_timeout=7&keepalives_idle=8&tcp_user_timeout=9000&application_name=x"
        "&options=-c%20search_path%3Dy",
        {},
    )
    assert (url.tls["sslmode"], url.connect_timeout) == ("require", 7.0)
    assert (url.keepalive.idle, url.keepalive.user_timeout) == (8, 9.0)
    assert (url.application_name, url.options) == ("x", "-c search_path=y")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{U}?pgbouncer=true", "'pgbouncer' is not a parameter"),
        (f"{U}?connection_limit=5", "HANGO_DB_POOL_SIZE"),
        (f"{U}?schema=public", "options=-c%20search_path=NAME"),
        (f"{U}?statement_timeout=5", "HANGO_RUN_LEASE_TTL"),
        (f"{U}?what=ever", "leave it out"),
        (f"{U}?target_session_attrs=standby", "hango writes"),
        (f"{U}?connect_timeout=soon", "not a whole number"),
        (f"{U}?sslmode=true", "none of disable, allow, prefer, require, verify-ca, verify-full"),
        (f"{U}?sslmode=verify-full", "give sslrootcert="),
        (f"{U}?sslmode=verify-ca", "give sslrootcert="),
        (f"{U}?sslrootcert=/nonexistent", "sslrootcert: /nonexistent cannot be read: No such file"),
        (f"{U}?sslcert=/nonexistent.crt", "sslcert: /nonexistent.crt cannot be read"),
        (f"{U}?sslmode=verify-full&sslrootcert={__file__}", "holds nothing that can be read as PEM"),
        (f"{U}?sslmode=require&sslrootcert=system", "needs sslmode=verify-full"),
        (f"{U}?service=nowhere", "'nowhere' is not in"),
        ("postgresql://u@a,b/d?port=1,2,3", "2 hosts and 3 ports"),
        ("postgresql://u@h:99999/d", "a port is a number"),
        ("postgresql://u@h:0/d", "a port is a number"),
        ("postgresql://u@h h/d", "a host is a name"),
        ("host=h dbname=d", "not a URL such as"),
        ("mysql://u@h/d", "not a URL such as"),
        ("postgresql://u@h/d?sslmode", "name=value"),
    ],
)
def test_a_mistake_is_named(text: str, said: str) -> None:
    """N18, N19, N20: by `hango config check`, before anything is connected to."""
    with pytest.raises(ConfigError) as caught:
        load({"HANGO_DATABASE_URL": text})
    (problem,) = caught.value.problems
    assert problem.startswith("HANGO_DATABASE_URL: ")
    assert said in problem


def test_all_mistakes_are_named_at_once() -> None:
    """Nobody tries three times."""
    with pytest.raises(ConfigError) as caught:
        DatabaseUrl.parse(f"{U}?schema=x&sslmode=yes&connect_timeout=soon", {})
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://u:Hunter2@{SECRET}#x@h/d",
        f"postgresql://u:Hunter2@{SECRET}@h/d",
        f"postgresql://u:{SECRET}/x@h/d",
        f"postgresql://u:1/{SECRET}@h/d",
        f"postgresql://u:1?{SECRET}=x@h/d",
        f"postgresql://u:1?{SECRET}@h/d",
        f"postgresql://u:{SECRET}#@h/d",
        f"postgresql://u:[{SECRET}@h:x/d",
        f"postgresql://u:{SECRET}",
        f"postgresql://u:{SECRET}\n@h:x/d",
        f"postgresql://u@h/d?password={SECRET}@#",
        f"mysql://u:{SECRET}@h/d",
        SECRET,
    ],
)
def test_nothing_of_a_password_is_said_wherever_it_lands(text: str) -> None:
    """N21: refused before anything is looked up, also where it looks like a host or a parameter."""
    with pytest.raises(ConfigError) as caught:
        DatabaseUrl.parse(text, {})
    assert SECRET not in str(caught.value)
    assert "Hunter2" not in str(caught.value)


def test_a_url_shows_no_secret() -> None:
    """Neither the password nor that of the key."""
    url = DatabaseUrl.parse(f"postgresql://u:{SECRET}@h/d?sslpassword={SECRET}", {})
    assert SECRET not in f"{url!r} {url}"


def test_what_the_url_does_not_say_is_in_the_environment(tmp_path: Path) -> None:
    """As for every client of libpq; the URL goes first, then the service."""
    (tmp_path / "services").write_text("[s]\nhost=of-service\nuser=of-service\n")
    environ = {
        "PGHOST": "of-env",
        "PGPORT": "7",
        "PGUSER": "of-env",
        "PGPASSWORD": "p",
        "PGDATABASE": "db",
        "PGAPPNAME": "a",
        "PGSERVICEFILE": str(tmp_path / "services"),
    }
    url = DatabaseUrl.parse("postgresql://", environ)
    assert (str(url), url.user, url.password, url.database) == ("of-env:7", "of-env", "p", "db")
    assert url.application_name == "a"
    url = DatabaseUrl.parse("postgresql://u@?service=s", environ)
    assert (str(url), url.user) == ("of-service:7", "u")


def test_a_password_file_is_read_as_libpq_reads_it(tmp_path: Path) -> None:
    """N21: colons and backslashes are escaped; a file that others may read is passed over."""
    file = tmp_path / "pass"
    file.write_text("# c\nh:5432:*:other:no\nh:5432:d\\:x:u:a\\:b\\\\c\nlocalhost:*:*:u:socket\n")
    file.chmod(0o600)
    environ = {"PGPASSFILE": str(file)}
    assert password("postgresql://u@h/d%3Ax", environ) == "a:b\\c"
    assert password("postgresql://u@/d?host=/run", environ) == "socket"
    assert password("postgresql://u@elsewhere/d", environ) is None
    file.chmod(0o644)
    assert password("postgresql://u@h/d%3Ax", environ) is None


def test_a_socket_needs_no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is set for other servers does not keep the embedded one from starting."""
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    assert DatabaseUrl.parse("postgresql:///d?host=/run").tls == {"sslmode": "disable"}
