"""What reads foreign text takes time that grows with it, not with its square (rule 29)."""

from __future__ import annotations

import pytest

from support import foreign_texts, foreign_values
from support.growth import BOUND, ENOUGH, LONG_ENOUGH, Parse, growth

TRIES = 8  # one good one is enough: a quadratic parser never comes near a linear one
VALUES = {**foreign_values.AGENT, **foreign_values.VALUES, **foreign_values.SERVERS}


def check(parse: Parse, enough: int) -> None:
    """Fail if *parse* is not about linear."""
    tries = []
    for _ in range(TRIES):
        tries.append(growth(parse, enough))
        if tries[-1] <= BOUND:
            return
    pytest.fail(f"8 times the input takes {min(tries):.0f} times as long")


@pytest.mark.rule(29)
@pytest.mark.parametrize("parse", foreign_texts.ROWS.values(), ids=foreign_texts.ROWS)
def test_time_grows_with_a_text(parse: Parse) -> None:
    """S-H3: eight times the text takes about eight times as long, whatever the text is."""
    check(parse, ENOUGH)


@pytest.mark.rule(29)
@pytest.mark.parametrize("parse", VALUES.values(), ids=VALUES)
def test_time_grows_with_a_value(parse: Parse) -> None:
    """S-M1: so do histories, ids, answers in pieces and arguments."""
    check(parse, LONG_ENOUGH)
