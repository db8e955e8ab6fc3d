"""Two agent loops behind one door: hango's, here, and toolnexus', in a process of its own.

One rule: both are told the same script and tell in the same words what they came to; what they asked is
seen by the server.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import attrs
import trio
from peers.author import BARE, MODEL, TOOLS, Rail, Seen, Spec, guardrail, verifier

import hango
from hango import Agent, BeforeToolEvent, Completion, Effects, Limits, Loop, RunOpts, RunResult, Toolkit
from hango.tools.builtin import builtin_tools

_PATIENCE = 60.0  # seconds for one script, on a busy machine


@attrs.frozen
class Told:
    """What one run came to.

    Attributes:
        attempts, turns, tokens: None if an exception got out, and they were not told.
        calls: name, arguments, output and whether that is an error.
        raised: type of the exception that got out of it.
    """

    status: str
    attempts: int | None = None
    turns: int | None = None
    stopped_by: str = ""
    text: str = ""
    calls: list[tuple[str, object, str, bool]] = attrs.field(factory=list)
    tokens: int | None = None
    raised: str = ""


@attrs.frozen
class Played:
    """What a script came to: its runs, and the loop after them."""

    runs: list[Told]
    status: str
    turns: int
    unsupported: list[str]


class Door(Protocol):
    """Plays a script against the server at a URL."""

    async def __call__(self, spec: Spec, url: str) -> Played:
        """Play it."""
        ...


# --- the other ----------------------------------------------------------------------------------


@contextmanager
def other_loop() -> Iterator[Door]:
    """Run the peer's loop, until the block is left."""
    program = Path(__file__).with_name("other_loop.py")
    process = subprocess.Popen(
        [f"{os.environ['HANGO_TEST_PEERS']}/python", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "NO_PROXY": "127.0.0.1"},
    )
    with process:

        async def play(spec: Spec, url: str) -> Played:
            asked = json.dumps({"spec": dataclasses.asdict(spec), "url": url})
            with trio.fail_after(_PATIENCE):
                told = await trio.to_thread.run_sync(_answer, process, asked, abandon_on_cancel=True)
            assert told, "the peer ended; what it said is on stderr"
            played = json.loads(told)
            return Played(**played | {"runs": [Told(**run) for run in played["runs"]]})

        try:
            yield play
        finally:
            process.kill()


def _answer(process: subprocess.Popen[str], asked: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(asked + "\n")
    process.stdin.flush()
    return process.stdout.readline()


# --- hango --------------------------------------------------------------------------------------


_CAMEL = {"team": "team", "wait_for": "waitFor", "on_metric": "onMetric"}  # as the other says it


async def hangos_loop(spec: Spec, url: str) -> Played:
    """Play *spec* through hango's direct door."""
    known = {tool.name for tool in builtin_tools(http_fetch_allowed_hosts=())}
    own = [_tool(name) for name in spec.tools if name not in known]
    async with Toolkit(own, builtins={name: name in spec.tools for name in known}) as toolkit:
        provider = hango.openai_provider(base_url=url, model=MODEL, api_key="any-key")
        loop = _agent(spec).loop(provider, toolkit)
        runs = [await _run(loop, prompt, spec.call_model) for prompt in spec.prompts]
        return Played(runs, loop.status, loop.turns, [_CAMEL[name] for name in loop.unsupported()])


async def _run(loop: Loop, prompt: str, model: str | None) -> Told:
    try:
        outcome = await loop.run(prompt, *(() if model is None else (RunOpts(model),)))
    except Exception as error:  # noqa: BLE001  # whatever it is, it is the answer
        return Told("error", raised=type(error).__name__)
    result = outcome.result
    return Told(
        outcome.status,
        outcome.attempts,
        outcome.turns,
        outcome.stopped_by,
        outcome.text,
        [(call.name, call.args, call.output, call.is_error) for call in result.tool_calls],
        result.usage.input_tokens + result.usage.output_tokens,
    )


def _agent(spec: Spec) -> Agent:
    gate = None
    if spec.verify is not None:
        # what the checks are about is not typed: a script may give a wrong one
        gate = Completion(_verify(spec), spec.max_attempts)  # type: ignore[arg-type]
    return Agent(
        "worker",
        does="works",
        soul=spec.soul,
        model=spec.model,
        team=[Agent("helper", does="helps")] if "team" in spec.declares else [],
        wait_for=print if "waitFor" in spec.declares else None,
        on_metric=print if "onMetric" in spec.declares else None,
        guardrails=[_guardrail(rail) for rail in spec.rails],
        completion=gate,
        limits=Limits(max_iterations=spec.max_turns),
    )


def _tool(name: str) -> hango.Tool:
    return hango.tool(TOOLS[name.removeprefix(BARE)], effects=Effects.READ_ONLY, name=name)


def _guardrail(rail: Rail) -> hango.Guardrail:
    judge = guardrail(rail)

    def guard(event: BeforeToolEvent) -> str | None:
        return judge(event.name, event.args)  # type: ignore[return-value]  # may be nonsense, on purpose

    return guard


def _verify(spec: Spec) -> hango.Verifier:
    if spec.verify == "todos":
        return hango.all_todos_done
    judge = verifier(spec.verify)

    def verify(result: RunResult) -> hango.Verdict:
        tokens = result.usage.input_tokens + result.usage.output_tokens
        seen = Seen([call.name for call in result.tool_calls], tokens)
        return judge(seen)  # type: ignore[return-value]  # may be no verdict, on purpose

    async def verify_async(result: RunResult) -> hango.Verdict:
        return verify(result)

    return verify_async if spec.verify_async else verify
