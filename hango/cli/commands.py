"""The command `hango`: its groups of commands, and how errors are printed and become exit codes.

Rule: an error of hango is printed as one line that says what to do, without a traceback.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback

import click

from hango import signals
from hango.cli.admin import agent, key, tenant, user
from hango.cli.maintenance import chaos, config, doctor, migrate, ps
from hango.cli.run import run
from hango.cli.serve import dev, serve
from hango.errors import ConfigError, HangoError, RegistrationError
from hango.safe_errors import leaves
from hango.telemetry import logs

FAILED, USAGE = 1, 2

_log = logging.getLogger(__name__)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="hango")
def cli() -> None:
    """Run AI agents durably: after a crash, a run continues from its last finished turn.

    Settings are HANGO_* environment variables; `hango config check` lists them.
    """


for _command in (run, dev, serve, migrate, doctor, ps, chaos, config, tenant, user, key, agent):
    cli.add_command(_command)


def run_command() -> None:
    """Run the command line and exit.

    Exit codes: 1 for a failure, 2 for wrong usage or settings, 128 and its number for a signal.
    """
    received = signals.install()
    if "_HANGO_COMPLETE" in os.environ:  # the shell asks for completions
        cli(prog_name="hango")  # which exits
    try:
        code = _invoke()
    except click.exceptions.Exit as end:
        code = end.exit_code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except BaseException as error:  # noqa: BLE001  # the border of the process: it ends here
        code = FAILED if _is_closed_output(error) else _report(error, 128 + received[-1])
    sys.exit(code)


def _invoke() -> int:
    """Invoke the command, without click's `main`: that hides EOFErrors and connections' EPIPE."""
    with cli.make_context("hango", sys.argv[1:]) as context:
        cli.invoke(context)
    return 0


def _is_closed_output(error: BaseException) -> bool:
    """Return whether *error* is that the reader of standard output is gone, as after `| head`."""
    if not isinstance(error, BrokenPipeError):
        return False
    *_, (frame, _line) = traceback.walk_tb(error.__traceback__)
    if frame.f_globals.get("__name__") != "click.utils":  # a connection's, then
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still buffered cannot be written either
    return True


def _report(error: BaseException, interrupted: int) -> int:
    """Print each error once; return the exit code, *interrupted* if a signal is all there is."""
    found = [leaf for leaf in leaves(error) if not isinstance(leaf, KeyboardInterrupt)]
    if not found:
        return interrupted
    for leaf in found:
        if isinstance(leaf, ConfigError):
            _say(*leaf.problems)
        elif isinstance(leaf, HangoError):
            _say(str(leaf) or type(leaf).__name__)
        else:
            _log.critical("unexpected error in hango", exc_info=leaf)
            logs.flush()
            _say(f"unexpected error ({type(leaf).__name__}); the log line above has its location")
    wrong = all(isinstance(leaf, ConfigError | RegistrationError) for leaf in found)
    return USAGE if wrong else FAILED


def _say(*lines: str) -> None:
    for line in lines:
        click.echo(f"hango: {line}", err=True)
