"""The bench: each kind of line measures something, and finds its rows complete."""

from __future__ import annotations

from bench import engine, floor


async def test_the_bench_measures_hango_and_the_floor(hango_database: str) -> None:
    """Both refuse a measurement whose rows are not all there."""
    whole = await engine.engine(hango_database, sessions=2, turns=3, seconds=0.0, history=4)
    assert whole.all_turns == 2 * 3
    loop = await engine.loop_in_memory(turns=3, history=2, sessions=1)
    assert loop.turns == 3 * 3
    assert floor.SQL.keys() == {"schema", "create", "claim", "turn", "settle"}
