"""How much longer a parser takes for eight times the input, in processor time of its own thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from hango.errors import HangoError
from hango.web.problem import ApiError

STEP = 8
BOUND = STEP**1.5  # a linear parser takes 8 times as long, a quadratic one 64 times
# Nanoseconds of a measurement.  Copying all before each piece shows late: a copy is fast.
ENOUGH, LONG_ENOUGH = 300_000, 3_000_000
MAX_SIZE = 1 << 20  # what takes less at this size has a bound of its own

Parse = Callable[[int], Callable[[], object]]
"""Makes an input of a size, and returns what parses it."""


def text_of(*parts: str) -> Callable[[int], str]:
    """Return a maker of texts: the first part, the second as often as it takes, the last."""
    before, again, after = parts if len(parts) == 3 else ("", *parts, "")[:3]
    return lambda size: before + again * (size // len(again)) + after


def on(parse: Callable[[str], object], *parts: str) -> Parse:
    """Return what makes a text and parses it."""
    make = text_of(*parts)
    return lambda size: partial(parse, make(size))


def refusing(parse: Callable[[str], object]) -> Callable[[str], object]:
    """Return *parse*, where a refusal is as good as an answer."""

    def tried(text: str) -> object:
        try:
            return parse(text)
        except (HangoError, ApiError, ValueError) as error:
            return error

    return tried


def spent(parse: Callable[[], object]) -> int:
    """Return the nanoseconds of the processor that *parse* takes."""
    before = time.thread_time_ns()
    parse()
    return time.thread_time_ns() - before


def growth(parse: Parse, enough: int) -> float:
    """Return how much more it takes for 8 times the input; 0 if it is bounded before that matters."""
    size = 256
    # The least of three: one that paid for fresh memory would end the search at too small a size.
    while (least := min(spent(parse(size)) for _ in range(3))) < enough:
        if size >= MAX_SIZE:
            return 0.0
        size *= 2
    return min(spent(parse(size * STEP)) for _ in range(2)) / least
