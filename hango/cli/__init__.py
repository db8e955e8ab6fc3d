"""The command line: one file per group of commands, each a thin wrapper round `hango.app`."""

from hango.cli.main import main

__all__ = ["main"]
