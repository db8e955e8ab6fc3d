"""Where two loops that were told the same script differ.

One rule: only what no one can compare is taken out, each with its reason; all the rest counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import attrs
from peers.doors import Played, Told

from hango.domain import JsonObject

# The API has no flag for a failed call, so hango says it in the text
ERROR_PREFIX = "Error: "
# Some servers refuse a result without text, so hango sends one
NO_OUTPUT = "(no output)"
DENIED = "denied: "  # the one error whose words are the author's


@attrs.frozen
class Seen:
    """A script as it went.

    Attributes:
        asked: bodies of the requests, in their order.
    """

    played: Played
    asked: Sequence[Mapping[str, object]]


def differences(ours: Seen, theirs: Seen) -> dict[str, tuple[object, object]]:
    """Return all in which the two differ, by its name."""
    one, other = dict(_facets(ours)), dict(_facets(theirs))
    both = one.keys() & other.keys()
    pairs = {name: (one[name], other[name]) for name in sorted(both) if one[name] != other[name]}
    # where one of them names nothing, its status says so
    by = pairs.get("stopped_by", ("", ""))
    return {k: v for k, v in pairs.items() if k != "stopped_by" or all(by)}


def _facets(seen: Seen) -> Iterator[tuple[str, object]]:
    runs, played = seen.played.runs, seen.played
    yield "status", [run.status for run in runs]
    yield "asked", [_request(body, _errors(runs)) for body in seen.asked]
    yield "unsupported", played.unsupported
    if any(run.raised for run in runs):
        return  # the rest went with the exception
    last = runs[-1]
    yield "attempts", [run.attempts for run in runs]
    yield "turns", [run.turns for run in runs]
    yield "stopped_by", last.stopped_by.replace("×", "x")  # noqa: RUF001 - the sign is what differs
    yield "calls", [[(n, a, _output(text, wrong=e), e) for n, a, text, e in run.calls] for run in runs]
    yield "loop", played.status
    yield "loop_turns", played.turns
    if last.status == "done":  # else each says in its own words what stopped it
        yield "text", [run.text for run in runs]
    if last.attempts == 1:  # the tokens of other attempts have a script of their own
        yield "tokens", [run.tokens for run in runs]


def _request(body: Mapping[str, object], errors: set[str]) -> JsonObject:
    """Return what was asked; not how: hango streams, the other says that it may choose a tool."""
    messages, tools = body["messages"], body.get("tools", [])
    assert isinstance(messages, list)
    assert isinstance(tools, list)
    names = sorted(tool["function"]["name"] for tool in tools)
    return {"model": body["model"], "tools": names, "messages": list(_messages(messages, errors))}


def _messages(messages: Sequence[JsonObject], errors: set[str]) -> Iterator[object]:
    """Yield what was said; an id is the place of its call in the answer, as it may be any text."""
    ids: list[object] = []
    for message in messages:
        said = message.get("content") or ""
        if message["role"] == "tool":
            wrong = str(said).startswith(ERROR_PREFIX) or said in errors
            yield ids.index(message["tool_call_id"]), _output(str(said), wrong=wrong)
            continue
        calls = message.get("tool_calls") or []
        assert isinstance(calls, list)
        ids = [call["id"] for call in calls]
        asked = [(ids.index(c["id"]), *_call(c["function"])) for c in calls]
        yield message["role"], said, asked


def _call(function: JsonObject) -> tuple[object, object]:
    """Return name and arguments: those that can be read as what they are, not as they are written."""
    arguments = str(function["arguments"])
    try:
        return function["name"], json.loads(arguments or "{}")
    except ValueError:
        return function["name"], arguments


def _output(text: str, *, wrong: bool) -> str:
    """Return what a tool said; errors are told in a library's own words, but for a denial."""
    said = text.removeprefix(ERROR_PREFIX) or NO_OUTPUT
    return "(an error)" if wrong and not said.startswith(DENIED) else said


def _errors(runs: Sequence[Told]) -> set[str]:
    return {output for run in runs for _, _, output, is_error in run.calls if is_error}
