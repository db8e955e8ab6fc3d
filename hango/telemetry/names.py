"""The names of metrics, spans and attributes.

The ``gen_ai`` names follow the OpenTelemetry GenAI conventions v0.1.0
(https://github.com/open-telemetry/semantic-conventions-genai), those of ``http`` the HTTP conventions,
``langfuse`` and ``openinference`` names are what those tools read; the ``hango`` names are ours.
"""

from __future__ import annotations

from typing import Final

# --- metrics --------------------------------------------------------------------------------
RUN_CLAIMS: Final = "hango.run.claims"
RUN_RECLAIMED: Final = "hango.run.reclaimed"
RUN_ENDED: Final = "hango.run.ended"
RUN_ITERATIONS: Final = "hango.run.iterations"
RUN_PICKUP_DELAY: Final = "hango.run.pickup_delay"
RUNS_BY_STATE: Final = "hango.runs.by_state"
RUN_QUEUE_DEPTH: Final = "hango.run.queue_depth"
FENCE_REJECTED: Final = "hango.fence.rejected"
TOOL_ERRORS: Final = "hango.tool.errors"
PROVIDER_RETRIES: Final = "hango.provider.retries"
LEASE_MARGIN: Final = "hango.lease.margin"
LOOP_LAG: Final = "hango.loop.lag"
ACTORS_ALIVE: Final = "hango.actors.alive"
POOL_SIZE: Final = "hango.db.pool.size"
POOL_IN_USE: Final = "hango.db.pool.in_use"
POOL_WAITING: Final = "hango.db.pool.waiting"
HTTP_DURATION: Final = "http.server.request.duration"
AGENT_DURATION: Final = "gen_ai.invoke_agent.duration"
AGENT_INFERENCE_CALLS: Final = "gen_ai.invoke_agent.inference_calls"
AGENT_TOOL_CALLS: Final = "gen_ai.invoke_agent.tool_calls"
TOOL_DURATION: Final = "gen_ai.execute_tool.duration"
INFERENCE_DURATION: Final = "gen_ai.client.inference.duration"
INFERENCE_FIRST_CHUNK: Final = "gen_ai.client.inference.time_to_first_chunk"
INPUT_TOKENS: Final = "gen_ai.client.inference.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.client.inference.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.client.inference.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.client.inference.usage.cache_write.input_tokens"
REASONING_TOKENS: Final = "gen_ai.client.inference.usage.reasoning.output_tokens"

# --- attributes -----------------------------------------------------------------------------
OUTCOME: Final = "outcome"
STATE: Final = "state"
WRITE: Final = "write"
ERROR_TYPE: Final = "error.type"
TOOL_NAME: Final = "gen_ai.tool.name"
OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
MODEL: Final = "gen_ai.request.model"
AGENT_NAME: Final = "gen_ai.agent.name"
HTTP_METHOD: Final = "http.request.method"
HTTP_ROUTE: Final = "http.route"
HTTP_STATUS: Final = "http.response.status_code"

TENANT_ID: Final = "hango.tenant.id"
AGENT_ID: Final = "hango.agent.id"
SESSION_ID: Final = "hango.session.id"
RUN_ID: Final = "hango.run.id"
LANE: Final = "hango.lane"
TURN: Final = "hango.turn"

# --- values ---------------------------------------------------------------------------------
UNKNOWN: Final = "_unknown"  # a tool that is not registered: a model makes up any number of names
OTHER: Final = "_other"  # whatever comes after a label has as many values as it may
