"""The command line, a file for each group of commands; the work is done by `hango.app`."""

from hango.cli.main import main

__all__ = ["main"]
