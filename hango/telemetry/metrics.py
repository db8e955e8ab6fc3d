"""The instruments, on the meter provider of the process; without one they do nothing.

They may be imported before a provider is set, and count from then on.

Rule: no label takes a value that a model, a client or a tenant can make up without a bound; `Bounded`
is for those that otherwise could.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs
from opentelemetry import metrics
from opentelemetry.metrics import Counter, Histogram

from hango.telemetry import names

_meter = metrics.get_meter("hango")

_SECONDS = tuple(0.01 * 2**power for power in range(14))  # 10 ms to 82 s
_LONG_SECONDS = tuple(0.1 * 2**power for power in range(13))  # 100 ms to 410 s
_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)
_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


def _histogram(name: str, unit: str, description: str, buckets: Iterable[float]) -> Histogram:
    return _meter.create_histogram(
        name, unit, description, explicit_bucket_boundaries_advisory=tuple(buckets)
    )


# --- runs -----------------------------------------------------------------------------------
run_claims = _meter.create_counter(
    names.RUN_CLAIMS, "{claim}", "Claims of a due run, by outcome: won, or lost to another process."
)
run_reclaimed = _meter.create_counter(
    names.RUN_RECLAIMED, "{run}", "Runs whose lease had lapsed, by the state they were put into."
)
run_ended = _meter.create_counter(
    names.RUN_ENDED, "{run}", "Runs that this process ended, by state and, if failed, error code."
)
run_iterations = _histogram(names.RUN_ITERATIONS, "{turn}", "Turns of a run when it ended.", _COUNTS)
run_pickup_delay = _histogram(
    names.RUN_PICKUP_DELAY,
    "s",
    "Time from the creation of a run to its first claim.",
    _FAST,
)
fence_rejected = _meter.create_counter(
    names.FENCE_REJECTED, "{write}", "Writes refused because the process no longer held the claim."
)
lease_margin = _histogram(
    names.LEASE_MARGIN, "s", "Time left of a lease when a heartbeat renewed it.", _LONG_SECONDS
)

# --- models and tools -----------------------------------------------------------------------
tool_errors = _meter.create_counter(
    names.TOOL_ERRORS, "{call}", "Tool calls that failed, by kind of error."
)
provider_retries = _meter.create_counter(
    names.PROVIDER_RETRIES, "{call}", "Provider calls that failed and were tried again."
)
agent_duration = _histogram(
    names.AGENT_DURATION, "s", "Duration of an execution of a run.", _LONG_SECONDS
)
agent_inference_calls = _histogram(
    names.AGENT_INFERENCE_CALLS, "{inference_call}", "Model calls of an execution.", _COUNTS
)
agent_tool_calls = _histogram(
    names.AGENT_TOOL_CALLS, "{tool_call}", "Tool calls of an execution.", _COUNTS
)
tool_duration = _histogram(names.TOOL_DURATION, "s", "Duration of a tool call.", _SECONDS)
inference_duration = _histogram(
    names.INFERENCE_DURATION, "s", "Duration of a model call, its tries included.", _SECONDS
)
inference_first_chunk = _histogram(
    names.INFERENCE_FIRST_CHUNK, "s", "Time from a model call to the first event of it.", _SECONDS
)
_TOKENS = {
    "input_tokens": (names.INPUT_TOKENS, "Tokens sent to models, cached ones included."),
    "output_tokens": (names.OUTPUT_TOKENS, "Tokens that models answered, reasoning included."),
    "cache_read_input_tokens": (names.CACHE_READ_TOKENS, "Tokens that models read from their cache."),
    "cache_write_input_tokens": (names.CACHE_WRITE_TOKENS, "Tokens that models put in their cache."),
    "reasoning_output_tokens": (names.REASONING_TOKENS, "Tokens that models used to reason."),
}
token_counters = {
    field: _meter.create_counter(name, "{token}", description)
    for field, (name, description) in _TOKENS.items()
}
"""By the field of a `Usage`."""

# --- the process and its database -----------------------------------------------------------
http_duration = _histogram(
    names.HTTP_DURATION, "s", "Duration of HTTP requests, by route and status.", _FAST
)
runs_by_state = _meter.create_gauge(
    names.RUNS_BY_STATE, "{run}", "Queued and running runs of a tenant, in the whole database."
)
run_queue_depth = _meter.create_gauge(
    names.RUN_QUEUE_DEPTH, "{run}", "Queued runs by lane, in the whole database."
)
loop_lag = _histogram(
    names.LOOP_LAG, "s", "How much later than asked for the event loop woke a task.", _FAST
)
actors_alive = _meter.create_gauge(
    names.ACTORS_ALIVE, "{actor}", "Sessions that this process keeps in memory."
)
pool_size = _meter.create_gauge(
    names.POOL_SIZE, "{connection}", "Database connections that may work at once."
)
pool_in_use = _meter.create_gauge(
    names.POOL_IN_USE, "{connection}", "Database connections that work now."
)
pool_waiting = _meter.create_gauge(
    names.POOL_WAITING, "{request}", "Tasks that wait for a database connection."
)


FENCED_WRITES = (
    "append",
    "end_turn",
    "settle",
    "release",
    "postpone",
    "abandon",
    "begin_call",
    "finish_call",
)
"""The writes of a claim, as ``hango.store`` names them."""


@attrs.define
class Bounded:
    """Values of a label that users choose: the first *limit* of them, and ``_other`` for the rest."""

    limit: int
    _known: set[str] = attrs.field(factory=set, init=False)

    def of(self, value: str) -> str:
        """Return *value*, or ``_other``."""
        if value in self._known:
            return value
        if len(self._known) >= self.limit:
            return names.OTHER
        self._known.add(value)
        return value


agents, models, error_codes = Bounded(100), Bounded(100), Bounded(100)
"""Labels whose values tenants and providers choose."""


def start_at_zero(
    *,
    states: Iterable[str],
    error_codes: Iterable[str],
    tools: Iterable[str],
    tool_error_kinds: Iterable[str],
    providers: Iterable[str],
) -> None:
    """Add 0 to every series of every counter, so that the first event shows as a rate."""
    for outcome in ("won", "lost"):
        run_claims.add(0, {names.OUTCOME: outcome})
    for state in states:
        run_reclaimed.add(0, {names.OUTCOME: state})
        run_ended.add(0, {names.STATE: state})
    for code in error_codes:
        run_ended.add(0, {names.STATE: "failed", names.ERROR_TYPE: code})
    for write in FENCED_WRITES:
        fence_rejected.add(0, {names.WRITE: write})
    kinds = tuple(tool_error_kinds)
    for tool in (*tools, names.UNKNOWN):
        for kind in kinds:
            tool_errors.add(0, {names.TOOL_NAME: tool, names.ERROR_TYPE: kind})
    for provider in providers:
        _zero_of_provider(provider, (provider_retries, *token_counters.values()))


def _zero_of_provider(provider: str, counters: Iterable[Counter]) -> None:
    for counter in counters:
        counter.add(0, {names.PROVIDER: provider})
