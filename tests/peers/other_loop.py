"""A program, not a module: the agent loop of toolnexus, in a process and an environment of its own.

One rule: it adds nothing to what that loop does.  It reads scripts, a line of JSON each, and answers
each with a line: what it came to.  An exception that got out of a run is told by its type.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping

# mypy sees this in the environment of hango, where neither is a module
from author import BARE, MODEL, TOOLS, Seen, Spec, guardrail, verifier  # type: ignore[import-not-found]
from toolnexus import RunResult, Tool, ToolResult, create_toolkit, define_tool  # type: ignore[import-not-found]
from toolnexus.agents import (  # type: ignore[import-not-found]
    Agent,
    Budget,
    Completion,
    Loop,
    Verdict,
    agent,
    all_todos_done,
    loop_unsupported,
)

OTHER_BUILTINS = "bash read write edit glob grep webfetch question apply_patch".split()  # noqa: SIM905 - a list to read


async def play(spec: Spec, url: str) -> dict[str, object]:
    """Run a script through the direct door."""
    only_todowrite = {"tools": dict.fromkeys(OTHER_BUILTINS, False)}
    toolkit = await create_toolkit(
        builtins=only_todowrite if "todowrite" in spec.tools else False,
        extra_tools=[_tool(name) for name in spec.tools if name != "todowrite"],
    )
    async with toolkit:
        made = _agent(spec)
        loop = made.loop(_options(spec, url), toolkit)
        return {
            "runs": [await _run(loop, prompt, spec.call_model) for prompt in spec.prompts],
            "status": loop.status,
            "turns": loop.turns,
            "unsupported": loop_unsupported(made),
        }


async def _run(loop: Loop, prompt: str, model: str | None) -> dict[str, object]:
    try:
        outcome = await loop.run(prompt, **({} if model is None else {"model": model}))
    except Exception as error:  # noqa: BLE001  # whatever it is, it is the answer
        return {"status": "error", "raised": type(error).__name__}
    result = outcome.result
    return {
        "status": outcome.status,
        "attempts": outcome.attempts,
        "turns": outcome.turns,
        "stopped_by": outcome.stopped_by,
        "text": outcome.text,
        "calls": [[c["name"], c["args"], c["output"], c["is_error"]] for c in result.tool_calls],
        "tokens": result.usage["total_tokens"],
    }


def _options(spec: Spec, url: str) -> dict[str, object]:
    """Say where the model is.

    Here the caller's model goes before the agent's, unless it is ``inherit``; in hango the provider's
    is for agents that have none.  The tries are as many as hango's, without its waits.
    """
    return {
        "base_url": f"{url}/v1",
        "style": "openai",
        "model": "inherit" if spec.model else MODEL,
        "api_key": "any-key",
        "retries": 3,
        "retry_base_ms": 1,
    }


def _agent(spec: Spec) -> Agent:
    unsupported: Mapping[str, Mapping[str, object]] = {
        "team": {"team": [agent("helper", does="helps")]},
        "waitFor": {"wait_for": print},
        "onMetric": {"on_metric": print},
    }
    declared = {key: value for word in spec.declares for key, value in unsupported[word].items()}
    return agent(
        "worker",
        does="works",
        soul=spec.soul,
        model=spec.model,
        budget=Budget(max_turns=spec.max_turns),
        guardrails=[_guardrail(rail) for rail in spec.rails],
        completion=None if spec.verify is None else Completion(_verify(spec), spec.max_attempts),
        **declared,
    )


def _tool(name: str) -> Tool:
    function = TOOLS[name.removeprefix(BARE)]
    tool = define_tool(function)
    if not name.startswith(BARE):
        return tool

    async def execute(args: Mapping[str, object], _: object) -> ToolResult:
        return ToolResult(function(**args), is_error=False)

    return Tool(name, "", tool.input_schema, "custom", execute)


def _guardrail(rail: Mapping[str, object]) -> Callable[[Mapping[str, object]], object]:
    judge = guardrail(rail)
    return lambda event: judge(event["name"], event["args"])


def _verify(spec: Spec) -> object:
    """Make the verifier; what it says in a pair, this library says in a value of its own."""
    if spec.verify == "todos":
        return all_todos_done
    judge = verifier(spec.verify)

    def verify(result: RunResult) -> object:
        seen = Seen([call["name"] for call in result.tool_calls], result.usage["total_tokens"])
        verdict = judge(seen)
        return Verdict(*verdict) if isinstance(verdict, tuple) else verdict

    async def verify_async(result: RunResult) -> object:
        return verify(result)

    return verify_async if spec.verify_async else verify


def main() -> None:
    """Answer until there is nothing more to read."""
    answers, sys.stdout = sys.stdout, sys.stderr  # so that nothing else gets between
    for line in sys.stdin:
        asked = json.loads(line)
        told = asyncio.run(play(Spec(**asked["spec"]), asked["url"]))
        answers.write(json.dumps(told) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
