"""Benchmarks of hango beside what the database and Python alone can do; see `docs/howto/benchmark.md`.

Rule: figures are compared within one run only, as ratios.  Each line is measured in a process and a
database of its own, and is refused unless the rows it left are all there.
"""
