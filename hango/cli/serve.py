"""`hango serve`, for operating, and `hango dev`, for trying it on one's own machine."""

from __future__ import annotations

import json
import shlex
from functools import partial

import attrs
import click
import trio

from hango import app
from hango.cli.common_options import start
from hango.cli.default_tenant import open_agent, open_home
from hango.config import LogLevel, ProcessRole, Settings
from hango.store import Stores

_SOCKET = "http://unix:"  # how the web server spells where it listens, when that is a socket
_PROMPT = "What time is it in Tokyo and in Berlin?"

_bind = click.option(
    "--bind",
    metavar="ADDRESS",
    help="host:port or unix:/path, instead of HANGO_BIND; port 0: a free one.",
)


@click.command()
@_bind
def serve(bind: str | None) -> None:
    """Answer HTTP and execute runs, as HANGO_ROLE says: all, web or worker.

    SIGTERM or Ctrl-C drains: no new runs, the turns under way are finished, and their runs handed
    over; what is not done within HANGO_DRAIN_TIMEOUT is cut short, and done again elsewhere.  Then
    the exit code is 0.  A second signal ends at once.
    """
    settings = start(LogLevel.INFO, {"HANGO_BIND": bind})
    plugins = app.load_plugins(settings)
    from hango import serve as server  # noqa: PLC0415 - loads the web server, which no other command needs

    with app.open_database(settings) as dsn:
        trio.run(partial(server.serve, settings, plugins, dsn))


@click.command()
@_bind
def dev(bind: str | None) -> None:
    """Serve on hango's own database, and print a key and a call to try.

    As `hango serve` with all roles; HANGO_DATABASE_URL is not used.  The key is a new one at each
    start, of the owner of the tenant `default`, whose runs `hango run` shares.
    """
    settings = start(LogLevel.INFO, {"HANGO_BIND": bind})
    settings = attrs.evolve(settings, database_url=None, role=ProcessRole.ALL)
    plugins = app.load_plugins(settings)
    from hango import serve as server  # noqa: PLC0415 - loads the web server, which no other command needs

    with app.open_database(settings) as dsn:
        trio.run(partial(server.serve, settings, plugins, dsn, welcome=partial(_welcome, settings)))


async def _welcome(settings: Settings, stores: Stores, url: str) -> None:
    home = await open_home(stores)
    agent = await open_agent(stores, home, settings)
    session = await stores.sessions.create(home.scope, agent.id, "hango dev")
    key = (await stores.accounts.create_key(home.tenant.id, home.owner.id, actor=home.owner.id)).key
    path = f"/v1/sessions/{session.id}"
    ask = _curl(url, f"{path}/runs", key, json.dumps({"input": _PROMPT}))
    click.echo(f"key {key}")
    click.echo(f"Ask:\n  {ask}")
    click.echo(f"Read what was said:\n  {_curl(url, f'{path}/messages', key)}")


def _curl(url: str, path: str, key: str, body: str | None = None) -> str:
    """Return a call of curl that works when it is pasted into a shell."""
    words = ["curl", "-sS", "-H", f"Authorization: Bearer {key}"]
    if body is not None:
        words += ["-H", "Content-Type: application/json", "-d", body]
    if url.startswith(_SOCKET):
        return shlex.join(
            [*words, "--unix-socket", url.removeprefix(_SOCKET), f"http://localhost{path}"]
        )
    # An address to listen on is not always one to connect to.
    host = url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
    return shlex.join([*words, host + path])
