"""Everything that can be asked of the API: what is sent, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping

from hango.domain import RunState
from hango.web import problem
from hango.web.openapi.administration import ADMINISTRATION, SERVER
from hango.web.openapi.operation import Answer, Operation, Parameter, listing, reading
from hango.web.openapi.words import named, one_of
from hango.web.problem import IDEMPOTENCY_KEY
from hango.web.wire import LONGEST_WAIT

ROOMS: Mapping[str, str] = {
    "runs": "Ask a session for something, and see how it goes.",
    "sessions": "Conversations with agents, and the messages in them.",
    "agents": "Models with instructions and tools; read by everybody, written by admins and owners.",
    "administration": "Users, their keys, and what was done; for admins and owners.",
    "server": "The server itself; no key is needed.",
}

_STATE = Parameter("state", "query", "Only runs in this state.", one_of(RunState))
_KEY = Parameter(
    IDEMPOTENCY_KEY,
    "header",
    "A name for this request, so that it can be sent again: then the run it made is answered, as it "
    "is by then, also when the line is full or the server draining.  A name is the caller's own, for "
    "this session, and for one body.",
    {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
)
_TRACE = Parameter(
    "traceparent",
    "header",
    "The caller's trace (W3C Trace Context): the run's own trace links to it.",
    {"type": "string"},
    checked=False,
)
_WAIT = Parameter(
    "Prefer",
    "header",
    f"`wait=N` (RFC 7240): answer when the run has ended, at most N seconds from now, {LONGEST_WAIT} "
    "at most, or when the server begins to drain.",
    {"type": "string", "examples": ["wait=30"]},
    checked=False,
)


_RUNS = (
    Operation(
        "create_run",
        "POST",
        "/v1/sessions/{session_id}/runs",
        "runs",
        "Queue a run.",
        [
            Answer(
                202,
                "The run: it is stored, and will be executed whatever happens to this server.",
                named("Run"),
                headers=("Location",),
                may_have=("Idempotency-Replayed",),
            )
        ],
        body=named("NewRun"),
        example={"input": "What time is it in Tokyo?"},
        parameters=[_KEY, _TRACE],
        refusals=[problem.KEY_REUSED, problem.QUEUE_FULL, problem.DRAINING],
    ),
    listing(
        "list_session_runs",
        "/v1/sessions/{session_id}/runs",
        "runs",
        "Run",
        "List the runs of a session, newest first.",
        parameters=[_STATE],
    ),
    listing("list_runs", "/v1/runs", "runs", "Run", "List runs, newest first.", parameters=[_STATE]),
    Operation(
        "get_run",
        "GET",
        "/v1/runs/{run_id}",
        "runs",
        "Read a run, or wait for its end.",
        [Answer(200, "The run.", named("Run"), may_have=("Preference-Applied",))],
        parameters=[_WAIT],
    ),
    Operation(
        "cancel_run",
        "POST",
        "/v1/runs/{run_id}/cancel",
        "runs",
        "Ask for the end of a run.",
        [
            Answer(202, "The run: whoever executes it has yet to see it.", named("Run")),
            Answer(200, "The run: it has ended, by this or before.", named("Run")),
        ],
        description="Asking again changes nothing.",
    ),
)

_SESSIONS = (
    Operation(
        "create_session",
        "POST",
        "/v1/sessions",
        "sessions",
        "Open a session with an agent.",
        [Answer(201, "The session.", named("Session"), headers=("Location",))],
        body=named("NewSession"),
        example={"agent_id": "{agent_id}", "title": "Clocks"},
        refusals=[problem.NOT_FOUND],
    ),
    listing("list_sessions", "/v1/sessions", "sessions", "Session", "List sessions, newest first."),
    reading("get_session", "/v1/sessions/{session_id}", "sessions", "Session", "Read a session."),
    listing(
        "list_messages",
        "/v1/sessions/{session_id}/messages",
        "sessions",
        "Message",
        "List the messages of a session, oldest first.",
    ),
    Operation(
        "create_message",
        "POST",
        "/v1/sessions/{session_id}/messages",
        "sessions",
        "Add a message that belongs to no run.",
        [Answer(201, "The message.", named("Message"))],
        body=named("NewMessage"),
        example={"role": "user", "content": "I live in Tokyo."},
        refusals=[problem.SESSION_BUSY],
    ),
)

_AGENTS = (
    Operation(
        "create_agent",
        "POST",
        "/v1/agents",
        "agents",
        "Store an agent.",
        [Answer(201, "The agent.", named("Agent"), headers=("Location",))],
        body=named("NewAgent"),
        example={"slug": "clock", "provider": "demo", "model": "demo-1", "tools": ["get_time"]},
        refusals=[problem.FORBIDDEN, problem.ALREADY_EXISTS],
    ),
    listing("list_agents", "/v1/agents", "agents", "Agent", "List agents, newest first."),
    reading("get_agent", "/v1/agents/{agent_id}", "agents", "Agent", "Read an agent."),
    Operation(
        "update_agent",
        "PATCH",
        "/v1/agents/{agent_id}",
        "agents",
        "Change an agent; runs read it at their next claim.",
        [Answer(200, "The agent.", named("Agent"))],
        body=named("AgentChange"),
        example={"system_prompt": "Answer in one sentence.", "limits": {"max_iterations": 5}},
        refusals=[problem.FORBIDDEN, problem.ALREADY_EXISTS],
    ),
)

OPERATIONS: tuple[Operation, ...] = (*_RUNS, *_SESSIONS, *_AGENTS, *ADMINISTRATION, *SERVER)
