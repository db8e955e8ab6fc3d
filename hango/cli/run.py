"""`hango run`: one durable run, executed in this process by the same workers as in a server.

Standard output has only the answer, or the object of ``--json``; progress, ids and errors go to
standard error.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from uuid import UUID, uuid4

import attrs
import click
import trio

from hango import app, watchdog
from hango.cli.common_options import as_json, print_json, start
from hango.cli.default_tenant import DefaultTenant, ModelChoice, open_agent, open_default_tenant
from hango.cli.progress import open_progress
from hango.codec import clean_text
from hango.config import LogLevel, Settings
from hango.domain import Run, RunState, Session, TextBlock, joined_text
from hango.errors import StoreUnavailable
from hango.plugins import Plugins
from hango.signals import watch_signals
from hango.store import Stores
from hango.telemetry import content
from hango.telemetry.exporting import exporting
from hango.text import printable
from hango.web.models.responses import RunJson

EXIT_CODES = {RunState.SUCCEEDED: 0, RunState.FAILED: 1, RunState.CANCELLED: 3}
_MAX_TITLE = 80  # characters of the prompt that become the title of its session
_POLL_INTERVAL = 0.1  # seconds; reads one row by its key
_DATABASE_TIMEOUT = 60.0  # seconds without a database; workers have given up by then


@attrs.frozen
class Request:
    """What to run; None means a new session, and the default agent."""

    prompt: str
    session_id: UUID | None
    agent: str | None
    model: ModelChoice


@attrs.frozen
class Ended:
    """A run that has ended, and the text of its last message; empty if there is none."""

    run: Run
    text: str


def _prompt(_context: click.Context, _argument: click.Parameter, value: str) -> str:
    text = sys.stdin.buffer.read().decode(errors="replace") if value == "-" else value
    if not text.strip():
        raise click.BadParameter("must not be blank")
    return clean_text(text)


@click.command()
@click.argument("prompt", callback=_prompt)
@click.option("--session", "session_id", type=click.UUID, help="Continue this session.")
@click.option("--agent", metavar="SLUG", help="An agent of the tenant `default`.")
@click.option(
    "--model",
    metavar="PROVIDER/MODEL",
    help="Of the default agent, as anthropic/claude-sonnet-4-5.",
)
@as_json
def run(
    prompt: str, session_id: UUID | None, agent: str | None, model: str | None, *, as_json: bool
) -> None:
    """Run PROMPT ("-": standard input) and print the answer.

    Without --agent, the agent is created for the provider that --model names, else for
    HANGO_DEFAULT_PROVIDER; if that is not set, for openai if OPENAI_API_KEY or OPENAI_BASE_URL is set
    (with the model OPENAI_MODEL), for anthropic likewise, else for the demo.  Without
    HANGO_DATABASE_URL, an embedded Postgres in HANGO_DATA_DIR is used.

    Progress and the ids of run, session and trace go to standard error.  --json prints the run as
    the API does, with its answer as "text".

    Ctrl-C cancels the run and waits for its end; a second one ends this process at once, and the
    next process that uses the database cancels the run.

    Exit codes: 0 succeeded, 1 failed, 2 wrong usage or settings, 3 cancelled.
    """
    if session_id and agent:
        raise click.UsageError("a session already has an agent: use --session or --agent, not both")
    if model is not None and (session_id or agent):
        raise click.UsageError("--model is for the default agent: leave out --session and --agent")
    settings = start(LogLevel.WARNING)
    plugins = app.load_plugins(settings)
    plugins.made_providers()  # an error in one shows before there is a run
    choice = ModelChoice.of(settings, model, plugins.providers)
    with app.open_database(settings) as dsn:
        request = Request(prompt, session_id, agent, choice)
        ended = trio.run(_execute, settings, plugins, dsn, request)
        _print(ended, as_json=as_json)
    click.get_current_context().exit(EXIT_CODES[ended.run.state])


def _print(ended: Ended, *, as_json: bool) -> None:
    if ended.run.error:
        click.echo(f"hango: failed: {printable(ended.run.error.message)}", err=True)
    elif ended.run.state is RunState.CANCELLED:
        click.echo("hango: cancelled", err=True)
    if as_json:
        found = {**RunJson.of(ended.run).to_json(), "text": ended.text}
        print_json(found)
    elif ended.run.state is RunState.SUCCEEDED:
        click.echo(printable(ended.text) if sys.stdout.isatty() else ended.text)


async def _execute(settings: Settings, plugins: Plugins, dsn: str, request: Request) -> Ended:
    content.record(on=settings.trace_content or content.asked_for(os.environ))
    async with (
        exporting(os.environ, str(uuid4()), scraped=False),
        app.open_stores(settings, dsn) as stores,
        trio.open_nursery() as nursery,
    ):
        asked_to_end = trio.Event()
        await nursery.start(watch_signals, asked_to_end)
        nursery.start_soon(watchdog.watch, settings.longest_stall, name="watchdog")
        home = await open_default_tenant(stores)
        session = await _session(stores, home, request)
        prompt = (TextBlock(request.prompt),)
        created = await stores.runs.create(
            home.scope, session.id, prompt, max_live=settings.max_queued_runs
        )
        for name, value in (("run", created.id), ("session", session.id), ("trace", created.trace_id)):
            click.echo(f"{name} {value}", err=True)
        nursery.start_soon(_cancel_when, asked_to_end, stores, home, created.id)
        ended = await _work_on(settings, plugins, stores, home, created)
        text = await _text(stores, home, session, ended)
        nursery.cancel_scope.cancel()
    return Ended(ended, text)


async def _session(stores: Stores, home: DefaultTenant, request: Request) -> Session:
    if request.session_id:
        return await stores.sessions.get(home.scope, request.session_id)
    if request.agent:
        agent = await stores.agents.by_slug(home.tenant.id, request.agent)
    else:
        agent = await open_agent(stores, home, request.model)
    return await stores.sessions.create(
        home.scope, agent.id, " ".join(request.prompt.split())[:_MAX_TITLE]
    )


async def _work_on(
    settings: Settings, plugins: Plugins, stores: Stores, home: DefaultTenant, run: Run
) -> Run:
    """Execute the session's runs, as a server would, until *run* has ended, here or elsewhere."""
    async with open_progress() as progress, trio.open_nursery() as nursery:
        drain = trio.Event()
        pool, only = stores.pool, run.session_id
        work = partial(app.work, settings, plugins, pool, drain=drain, only=only, events=progress)
        await nursery.start(work)
        ended = await _ended(stores, home, run)
        drain.set()
    return ended


async def _ended(stores: Stores, home: DefaultTenant, run: Run) -> Run:
    give_up = trio.current_time() + _DATABASE_TIMEOUT
    while not run.state.terminal:
        await trio.sleep(_POLL_INTERVAL)
        try:
            run = await stores.runs.get(home.scope, run.id)
        except StoreUnavailable:
            if trio.current_time() > give_up:
                raise
        else:
            give_up = trio.current_time() + _DATABASE_TIMEOUT
    return run


async def _cancel_when(asked: trio.Event, stores: Stores, home: DefaultTenant, run_id: UUID) -> None:
    await asked.wait()
    click.echo("hango: cancelling the run; a second signal ends this process at once", err=True)
    while True:
        try:
            await stores.runs.cancel(home.scope, run_id)
        except StoreUnavailable:
            await trio.sleep(_POLL_INTERVAL)
        else:
            return


async def _text(stores: Stores, home: DefaultTenant, session: Session, run: Run) -> str:
    """Return the text of the run's last message, which is newer than *session*."""
    after = session.last_seq
    while page := await stores.sessions.messages(home.scope, session.id, after=after):
        for message in page:
            if message.id == run.final_message_id:
                return joined_text(message.content, "\n")
        after = page[-1].seq
    return ""
