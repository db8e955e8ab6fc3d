"""The command `hango`: its groups of commands, and how errors are printed and become exit codes.

Rule: an error of hango is printed as one line that says what to do, without a traceback.
"""

from __future__ import annotations

import logging
import signal
import sys
from types import FrameType

import click

from hango.cli.admin import agent, key, tenant, user
from hango.cli.maintenance import chaos, config, doctor, migrate
from hango.cli.run import run
from hango.cli.serve import dev, serve
from hango.errors import ConfigError, HangoError, RegistrationError
from hango.safe_errors import leaves

FAILED, USAGE = 1, 2

_log = logging.getLogger(__name__)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="hango")
def cli() -> None:
    """Run AI agents durably: after a crash, a run continues from its last finished turn.

    Settings are HANGO_* environment variables; `hango config check` lists them.
    """


for _command in (run, dev, serve, migrate, doctor, chaos, config, tenant, user, key, agent):
    cli.add_command(_command)


def main() -> None:
    """Run the command line; exit with 1 for a failure and 2 for wrong usage or settings."""
    signals: list[int] = [signal.SIGINT]

    def interrupt(number: int, _frame: FrameType | None) -> None:
        # Like Ctrl-C, which trio raises where it is safe.
        signals.append(number)
        signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGTERM, interrupt)
    try:
        sys.exit(cli(standalone_mode=False))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(128 + signals[-1])
    except Exception as error:  # noqa: BLE001  # the border of the process: it ends here
        sys.exit(_report(error))
    except BaseExceptionGroup:  # the same as KeyboardInterrupt, out of a nursery
        sys.exit(128 + signals[-1])


def _report(error: Exception) -> int:
    """Print each error once; return the exit code."""
    found = list(leaves(error))
    for leaf in found:
        if isinstance(leaf, ConfigError):
            _say(*leaf.problems)
        elif isinstance(leaf, HangoError):
            _say(str(leaf) or type(leaf).__name__)
        else:
            _log.critical("unexpected error in hango", exc_info=leaf)
            _say(f"unexpected error ({type(leaf).__name__}); the log line above has its location")
    wrong = all(isinstance(leaf, ConfigError | RegistrationError) for leaf in found)
    return USAGE if wrong else FAILED


def _say(*lines: str) -> None:
    for line in lines:
        click.echo(f"hango: {line}", err=True)
