"""`hango serve`, for production, and `hango dev`, for trying hango on one machine."""

from __future__ import annotations

import json
import shlex
from functools import partial

import attrs
import click
import trio

from hango import app
from hango.cli.common_options import start
from hango.cli.default_tenant import ModelChoice, open_agent, open_default_tenant, open_key
from hango.config import LogLevel, ProcessRole, Settings
from hango.plugins import Plugins
from hango.store import Stores

_SOCKET = "http://unix:"  # how the web server writes the address of a Unix socket
_PROMPT = "What time is it in Tokyo and in Berlin?"

_bind = click.option(
    "--bind",
    metavar="ADDRESS",
    help="host:port or unix:/path; overrides HANGO_BIND. Port 0 chooses a free one.",
)


@click.command()
@_bind
def serve(bind: str | None) -> None:
    """Answer HTTP and execute runs; HANGO_ROLE chooses all, web or worker.

    SIGTERM or Ctrl-C drains: no new runs are started, running turns finish, and their runs are
    handed to other processes.  Turns that are not finished after HANGO_DRAIN_TIMEOUT are interrupted
    and run again elsewhere.  Then the exit code is 0.  A second signal ends the process at once.
    """
    settings = start(LogLevel.INFO, {"HANGO_BIND": bind})
    plugins = _load_plugins(settings)
    from hango import serve as server  # noqa: PLC0415 - loads the web server

    with app.open_database(settings) as dsn:
        trio.run(partial(server.serve, settings, plugins, dsn))


@click.command()
@_bind
def dev(bind: str | None) -> None:
    """Serve with the embedded Postgres, and print an API key and a request to try.

    Like `hango serve` with HANGO_ROLE=all; HANGO_DATABASE_URL is ignored.  The key belongs to the
    owner of the tenant `default`, which `hango run` uses, too; it is kept in HANGO_DATA_DIR.
    """
    settings = start(LogLevel.INFO, {"HANGO_BIND": bind})
    settings = attrs.evolve(settings, database_url=None, role=ProcessRole.ALL)
    plugins = _load_plugins(settings)
    from hango import serve as server  # noqa: PLC0415 - loads the web server

    with app.open_database(settings) as dsn:
        trio.run(partial(server.serve, settings, plugins, dsn, welcome=partial(_welcome, settings)))


def _load_plugins(settings: Settings) -> Plugins:
    """Load the plug-ins; where runs are executed, also make the providers, before anything else."""
    plugins = app.load_plugins(settings)
    if settings.role is not ProcessRole.WEB:
        plugins.made_providers()
    return plugins


async def _welcome(settings: Settings, stores: Stores, url: str) -> None:
    home = await open_default_tenant(stores)
    agent = await open_agent(stores, home, ModelChoice.of(settings, None, ()))
    session = await stores.sessions.create(home.scope, agent.id, "hango dev")
    key = await open_key(stores, home, settings.data_dir)
    path = f"/v1/sessions/{session.id}"
    ask = _curl(url, f"{path}/runs", key, json.dumps({"input": _PROMPT}))
    click.echo(f"key {key}")
    click.echo(f"Ask a question:\n  {ask}")
    click.echo(f"Read the messages:\n  {_curl(url, f'{path}/messages', key)}")


def _curl(url: str, path: str, key: str, body: str | None = None) -> str:
    """Return a curl command that can be pasted into a shell."""
    words = ["curl", "-sS", "-H", f"Authorization: Bearer {key}"]
    if body is not None:
        words += ["-H", "Content-Type: application/json", "-d", body]
    if url.startswith(_SOCKET):
        return shlex.join(
            [*words, "--unix-socket", url.removeprefix(_SOCKET), f"http://localhost{path}"]
        )
    # The wildcard addresses are for listening only.
    host = url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
    return shlex.join([*words, host + path])
