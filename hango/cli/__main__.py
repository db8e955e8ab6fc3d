"""`python -m hango.cli` is `hango`."""

from hango.cli import main

main()
