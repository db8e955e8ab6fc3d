"""The log lines of a run: claimed and ended, a failure as a warning, and no content in any."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import attrs
import pytest

from hango.domain import ErrorCode, RunError
from hango.errors import ProviderError
from hango.telemetry.reasons import reason
from hango.testing import Answer, FakeProvider, answer, call, failing, text
from hango.testing.plugin import SeededTenant

from support.workers import SETTINGS, started_worker, until

REFUSED = ProviderError("openai answered 401 (invalid_api_key): MARKER", code="invalid_api_key")
CASES: dict[str, tuple[Sequence[Answer], int, str]] = {
    "done": (
        [answer(text("MARKER"))],
        logging.INFO,
        "the run is succeeded; turns: 1, tokens: 10 in, 5 out, ",
    ),
    "refused": (
        [failing(REFUSED)],
        logging.WARNING,
        "the run is failed: provider_error (openai answered 401 (invalid_api_key)); turns: 0, ",
    ),
    "cap": (
        [answer(call("MARKER"))],
        logging.WARNING,
        "the run is failed: iteration_cap (Stopped before the work was done: this run reached",
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_run_has_a_line_when_it_is_claimed_and_one_when_it_ends(
    world: SeededTenant, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    """State, code, bounded reason, turns, tokens and seconds; whose fields machines can read."""
    answers, level, said = CASES[case]
    settings = attrs.evolve(SETTINGS, max_iterations=1)
    with caplog.at_level(logging.INFO):
        async with started_worker(world, FakeProvider(answers), settings=settings):
            (run,) = await until(world, [await world.run(await world.session(), "MARKER")])
    claimed, ended = (line for line in caplog.records if line.name == "hango.runs")
    assert claimed.getMessage() == "the run is claimed, from turn 1"
    assert ended.levelno == level
    assert ended.getMessage().startswith(said)
    fields = vars(ended)
    assert fields["hango.run.state"] == run.state
    assert fields["hango.turns"] == run.iterations
    assert fields.get("error.type") == (run.error.code if run.error else None)
    assert not [line for line in caplog.records if "MARKER" in line.getMessage() + str(vars(line))]


@pytest.mark.parametrize(
    ("code", "message", "said"),
    [
        (ErrorCode.PROVIDER_ERROR, "openai answered 500: MARKER", "openai answered 500"),
        (ErrorCode.PROVIDER_ERROR, "openai failed (x.y): MARKER", "openai failed (x.y)"),
        (ErrorCode.PROVIDER_ERROR, "overloaded: MARKER", "overloaded"),
        (ErrorCode.PROVIDER_ERROR, "MARKER and more", ""),
        (ErrorCode.INCOMPLETE, "MARKER", ""),
        (ErrorCode.VERIFIER_ERROR, "ValueError('MARKER')", ""),
        (ErrorCode.DEADLINE_EXCEEDED, "the run took longer than 5 s", "the run took longer than 5 s"),
    ],
)
def test_a_reason_has_no_content(code: ErrorCode, message: str, said: str) -> None:
    """A sentence of hango's, or the code of a provider; nothing that a model or a tool has said."""
    assert reason(RunError(code, message)) == said
