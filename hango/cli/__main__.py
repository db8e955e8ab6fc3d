"""Lets `python -m hango.cli` run the command `hango`."""

from hango.cli import main

main()
