"""The names of metrics and attributes.

The ``gen_ai`` names follow the OpenTelemetry GenAI conventions v0.1.0
(https://github.com/open-telemetry/semantic-conventions-genai); the ``hango`` names are ours.
"""

from __future__ import annotations

from typing import Final

# --- metrics --------------------------------------------------------------------------------
RUN_CLAIMS: Final = "hango.run.claims"
RUN_RECLAIMED: Final = "hango.run.reclaimed"
FENCE_REJECTED: Final = "hango.fence.rejected"
TOOL_ERRORS: Final = "hango.tool.errors"

# --- attributes -----------------------------------------------------------------------------
OUTCOME: Final = "outcome"
WRITE: Final = "write"
ERROR_TYPE: Final = "error.type"
TOOL_NAME: Final = "gen_ai.tool.name"

TENANT_ID: Final = "hango.tenant.id"
AGENT_ID: Final = "hango.agent.id"
SESSION_ID: Final = "hango.session.id"
RUN_ID: Final = "hango.run.id"
TURN: Final = "hango.turn"
