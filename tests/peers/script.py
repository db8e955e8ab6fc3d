"""A script for two agent loops, as data: what the model says, and how it has to end.

One rule: how hango ends is written out by hand for every script, so that two loops which are wrong
together do not agree unnoticed.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import TypeAlias

import attrs
from peers.author import Spec

from support.llm_server import Received, Reply, Replying, delta, error_reply, finish, sse, stream_reply

USAGE = {"prompt_tokens": 6, "completion_tokens": 4, "total_tokens": 10}  # of every answer


class Stricter(Enum):
    """Where hango differs on purpose, and why."""

    SILENT_CAP = "work that was cut off is not done, though the model had said something before"
    NAME_OF_CAP = "the cap has a name: iteration_cap"
    CAP_PER_RUN = "one cap for the whole run: another attempt is no way around it"
    TODO_DENIED = "a plan that was denied is no plan, and does not lift the one before"
    TODO_FAILED = "a plan that failed is no plan: it lifts nothing before it, and opens nothing"
    TODO_EMPTIED = "giving up what is open is not completing it"
    TODO_TEXT_FOR_TRUE = "completed is true, and nothing that merely looks so"
    MALFORMED_ARGUMENTS = "arguments nobody can read are not taken for none"
    RAISING_TOOL = "a tool that fails is a result for the model, and the run goes on"
    RAISING_GUARDRAIL = "a guardrail that fails denies the call, and the run goes on"
    RAISING_VERIFIER = "a verifier that fails ends the run as an outcome, which tells what was done"
    NO_VERDICT = "what is no verdict ends the run as an outcome, which tells what was done"
    ATTEMPTS_NO_NUMBER = "True is no number of attempts"
    DUPLICATE_IDS = "every call has an id of its own: most servers refuse a history without"
    LOST_USAGE = "attempts that failed were paid for, too"
    # what else these scripts have found
    RUN_COUNTS_FOR_ITSELF = "an outcome tells the turns of its own run; the loop tells all"
    WRONG_ARGUMENTS = "arguments that do not fit the schema are an error before the tool runs"
    CUT_SHORT = "no tool of an answer that was cut short runs; its calls may not be whole"
    NOTHING_SAID = "text that says nothing is not sent back, nor told as a reason"
    TOO_MANY_CALLS = "an answer of more calls than anybody meant ends the run"


@attrs.frozen
class Call:
    """A tool call of the model: arguments as they are streamed; an empty id is made up."""

    name: str
    arguments: str
    id: str = ""


@attrs.frozen
class Say:
    """An answer of the model."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    finish_reason: str = ""

    def __call__(self, number: int) -> Replying:
        """Make it the answer to request *number*, streamed or not, as it is asked for."""
        calls = [
            {
                "index": index,
                "id": call.id or f"call_{number}_{index}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for index, call in enumerate(self.calls)
        ]
        message: dict[str, object] = {"role": "assistant", "content": self.text or None}
        message |= {"tool_calls": calls} if calls else {}
        reason = self.finish_reason or ("tool_calls" if calls else "stop")

        def reply(request: Received) -> Reply:
            if request.body.get("stream"):
                usage = {"choices": [], "usage": USAGE}
                return stream_reply(sse(delta(**message), finish(reason), usage))
            choice = {"index": 0, "message": message, "finish_reason": reason}
            body = json.dumps({"choices": [choice], "usage": USAGE})
            return error_reply(200, body, content_type="application/json")

        return reply


@attrs.frozen
class Refuse:
    """An answer of the server instead; a *status* that passes may be tried again at once."""

    status: int

    def __call__(self, number: int) -> Replying:
        """Make it the answer to request *number*."""
        body = json.dumps({"error": {"message": f"request {number}", "type": "server_error"}})
        at_once = {"retry_after_ms": "1", "retry_after": "0"}  # the two read one each
        return error_reply(self.status, body, content_type="application/json", **at_once)


Answering: TypeAlias = Say | Refuse


def text(said: str) -> Say:
    """Say *said* and nothing else."""
    return Say(said)


def calls(*wanted: Call, said: str = "", finish_reason: str = "") -> Say:
    """Ask for *wanted*."""
    return Say(said, wanted, finish_reason)


def call(name: str, **arguments: object) -> Call:
    """Call a tool."""
    return Call(name, json.dumps(arguments))


def plan(**items: object) -> Call:
    """Write the list: texts, and whether they are completed."""
    todos = [{"id": word, "text": word, "completed": done} for word, done in items.items()]
    return call("todowrite", todos=todos)


@attrs.frozen
class Ends:
    """How a script ends.

    Attributes:
        attempts: of the last run; None where nobody tells.
        by: what stopped it; empty where nobody tells.
        asked: requests; None for one for each answer there is.
        raised: type of the exception that got out of the run.
    """

    status: str = "done"
    attempts: int | None = 1
    by: str = ""
    asked: int | None = None
    raised: str = ""

    def as_the_peer_writes_it(self) -> Ends:
        """Return the same, with an x for a times sign."""
        return attrs.evolve(self, by=self.by.replace("×", "x"))  # noqa: RUF001 - the sign is what differs


def raises(kind: str, *, asked: int | None = None) -> Ends:
    """End with an exception, which tells nothing else."""
    return Ends("error", None, asked=asked, raised=kind)


def exhausted(reason: str, attempts: int) -> Ends:
    """End with a gate that has said no for the last time."""
    return Ends("incomplete", attempts, f"completion.verify failed {attempts}×: {reason}")  # noqa: RUF001 - a times sign


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


@attrs.frozen
class Script:
    """One script.

    Attributes:
        answers: to the requests, in their order; another request is refused.
        ends: how hango ends.
        peer: how the other ends; None: as hango.
        why, where: if hango is stricter: the reason, and all that differs by it.
    """

    name: str
    spec: Spec
    answers: tuple[Answering, ...]
    ends: Ends = attrs.field(factory=Ends)
    peer: Ends | None = None
    why: Stricter | None = None
    where: frozenset[str] = attrs.field(default="", converter=_words)
