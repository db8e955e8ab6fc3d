"""The log lines of a run: one when it is claimed, one when its execution ends.

Rule: a failure is a warning, and says why without content.
"""

from __future__ import annotations

import logging

from hango.domain import Run, RunState
from hango.telemetry import content, names
from hango.telemetry.reasons import reason
from hango.telemetry.run_trace import RunTrace

_log = logging.getLogger("hango.runs")


def log_claim(run: Run) -> None:
    """Say that *run* is claimed, and where it goes on."""
    fields = {"hango.claim.epoch": run.claim_epoch, "hango.resume_turn": run.resume_turn}
    again = f", claim {run.claim_epoch} of it" if run.claim_epoch > 1 else ""
    _log.info("the run is claimed, from turn %d%s", run.resume_turn + 1, again, extra=fields)


def log_end(trace: RunTrace) -> None:
    """Say how the execution ended: state, why, turns, tokens and seconds."""
    fields: dict[str, object] = {
        "hango.run.state": trace.state or "unknown",
        "hango.seconds": round(trace.seconds, 3),
        "hango.inference_calls": trace.inference_calls,
        "hango.tool_calls": trace.tool_calls,
    }
    level, why, totals = logging.INFO, "", f"model calls: {trace.inference_calls}"
    if trace.state is None:
        level, why = logging.WARNING, ": nothing more could be written, its lease will lapse"
    elif (outcome := trace.outcome) is not None:
        usage = outcome.usage
        fields |= {
            "hango.turns": outcome.iterations,
            "gen_ai.usage.input_tokens": usage.input_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
        }
        tokens = f"{usage.input_tokens} in, {usage.output_tokens} out"
        totals = f"turns: {outcome.iterations}, tokens: {tokens}"
        if outcome.error is not None and trace.state is RunState.FAILED:
            text = outcome.error.message[:1000] if content.recorded() else reason(outcome.error)
            level, why = logging.WARNING, f": {outcome.error.code}{f' ({text})' if text else ''}"
            fields |= {names.ERROR_TYPE: outcome.error.code.value, "hango.run.reason": text}
    state = f"is {trace.state}" if trace.state else "has ended here"
    _log.log(level, "the run %s%s; %s, %.2f s", state, why, totals, trace.seconds, extra=fields)
