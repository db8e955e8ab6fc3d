"""One server, one script, two agent loops: hango's direct door and that of toolnexus.

They agree, except where hango is stricter on purpose; there it is told how both end, and all that
differs by it, so that a difference which is gone is noticed as well as a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from peers.comparison import Seen, differences
from peers.doors import Door, hangos_loop, other_loop
from peers.script import Ends, Refuse, Script, Stricter
from peers.scripts.answers import ANSWERS
from peers.scripts.gates import GATES
from peers.scripts.guardrails import GUARDRAILS

from support.llm_server import serve_llm

SCRIPTS = (*ANSWERS, *GUARDRAILS, *GATES)
BEYOND = 6  # requests that are refused, since the script is over, and then fail the comparison


@pytest.fixture(scope="module")
def peer() -> Iterator[Door]:
    """Have the other loop, one process for all scripts."""
    with other_loop() as door:
        yield door


async def play(script: Script, door: Door) -> Seen:
    """Play *script* through *door*."""
    answers = (*script.answers, *(Refuse(400),) * BEYOND)
    async with serve_llm(*(answer(number) for number, answer in enumerate(answers))) as server:
        played = await door(script.spec, server.url)
    return Seen(played, [request.body for request in server.received])


def check(seen: Seen, script: Script, ends: Ends) -> None:
    """See that it ended as it is written."""
    last = seen.played.runs[-1]
    due = len(script.answers) if ends.asked is None else ends.asked
    assert (last.status, last.raised, len(seen.asked)) == (ends.status, ends.raised, due), last
    assert last.attempts == ends.attempts
    told = last.stopped_by
    assert told.startswith(ends.by) if ends.by.endswith(": ") else told == ends.by


@pytest.mark.rule(23)
@pytest.mark.rule(24)
@pytest.mark.rule(25)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
async def test_two_loops_agree_on_a_script(
    script: Script, peer: Door, record_property: Callable[[str, object], None]
) -> None:
    """What was asked, said, called and counted is the same, or differs as it should."""
    ours, theirs = await play(script, hangos_loop), await play(script, peer)
    check(ours, script, script.ends)
    check(theirs, script, (script.peer or script.ends).as_the_peer_writes_it())
    found = differences(ours, theirs)
    assert found.keys() == script.where, found
    record_property("two loops", "agree" if script.why is None else "differ")


def test_scripts_are_many_and_every_reason_has_one() -> None:
    """At least 30; each has its own name; and nothing is allowed that no script needs."""
    assert len(SCRIPTS) >= 30
    assert len({script.name for script in SCRIPTS}) == len(SCRIPTS)
    assert {script.why for script in SCRIPTS} == {None, *Stricter}
    lenient = [s.name for s in SCRIPTS if s.why and not s.where and not (s.peer and s.peer.raised)]
    assert not lenient
    assert not [script.name for script in SCRIPTS if script.where and script.why is None]
