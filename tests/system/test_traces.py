"""The trace of a run, recorded whole: names, kinds, parents, links, events, attributes and statuses."""

from __future__ import annotations

import json
from collections.abc import Sequence

import attrs
import pytest
from opentelemetry.sdk.trace import ReadableSpan

from hango.agent import model_call
from hango.domain import Effects, Gate, Result, RunState, TextBlock, Usage
from hango.errors import ProviderError
from hango.telemetry import content, names
from hango.testing import Answer, FakeProvider, answer, broken, call, failing, text
from hango.testing.plugin import SeededTenant, make_seeded_tenant
from hango.tools import tool

from support.counters import counted
from support.spans import attribute, recorded, tree
from support.workers import SETTINGS, BlockingTool, started_worker, until


@tool(effects=Effects.READ_ONLY)
async def noon() -> str:
    """Tell the time."""
    return "12:00"


@tool(effects=Effects.READ_ONLY)
async def failing_tool() -> Result:
    """Return an error."""
    return Result("no such city", is_error=True)


REFUSED = ProviderError("openai answered 401 (invalid_api_key): no", code="invalid_api_key")
ROOT, CHAIN, CHAT, NOON = (
    "invoke_agent Helper I",
    "  chain I",
    "    chat model-1 C",
    "    execute_tool noon I",
)
CASES: dict[str, tuple[Sequence[Answer], Sequence[str]]] = {
    "text only": ([answer(text("hello"))], [f"{ROOT} +run.claimed", CHAIN, CHAT]),
    "one tool call": (
        [answer(call("noon")), answer(text("it is noon"))],
        [f"{ROOT} +run.claimed", CHAIN, CHAT, NOON, CHAIN, CHAT],
    ),
    "tool errors": (
        [answer(call("failing_tool"), call("invented_by_the_model")), answer(text("sorry"))],
        [
            f"{ROOT} +run.claimed",
            CHAIN,
            CHAT,
            "    execute_tool failing_tool I !tool_error",
            "    execute_tool _unknown I !unknown_tool",
            CHAIN,
            CHAT,
        ],
    ),
    "cap": (
        [answer(call("noon"))] * 2,
        [
            f"{ROOT} !iteration_cap +run.claimed",
            CHAIN,
            CHAT,
            NOON,
            f"{CHAIN} !iteration_cap",
            CHAT,
            NOON,
        ],
    ),
    "broken stream": (
        [broken(text("hel"))] * 3,
        [
            f"{ROOT} !provider_stream_broken +run.claimed",
            f"{CHAIN} !provider_stream_broken",
            f"{CHAT} !stream_ended +retry +retry",
        ],
    ),
    "refused": (
        [failing(REFUSED)],
        [
            f"{ROOT} !provider_error +run.claimed",
            f"{CHAIN} !provider_error",
            f"{CHAT} !invalid_api_key",
        ],
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_every_end_of_a_run_is_a_whole_tree(
    world: SeededTenant,
    case: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """G01, G02: one root, a chain for each turn, below it the calls; all are ended."""
    monkeypatch.setattr(model_call, "FIRST_DELAY", 0.0)
    answers, expected = CASES[case]
    settings = attrs.evolve(SETTINGS, max_iterations=2)
    with recorded() as spans:
        async with started_worker(world, FakeProvider(answers), noon, failing_tool, settings=settings):
            (run,) = await until(world, [await world.run(await world.session())])
    assert tree(spans, run.trace_id) == list(expected)
    assert run.span_id == _id(spans, ROOT)
    assert not [line for line in caplog.records if line.name.startswith("opentelemetry")]


async def test_every_span_has_what_the_tools_for_traces_read(world: SeededTenant) -> None:
    """The attributes of the conventions, of Langfuse and of OpenInference; G04: of the right types."""
    usage = Usage(100, 20, 40, 10, 5)
    with recorded() as spans:
        async with started_worker(
            world,
            FakeProvider([answer(call("noon", id="call_1")), answer(text("noon"), usage=usage)]),
            noon,
        ):
            session = await world.session()
            run = await world.runs.create(
                world.scope(),
                session.id,
                (TextBlock("hi"),),
                max_live=9,
                request_trace=f"00-{'a' * 32}-{'b' * 16}-01",
            )
            await until(world, [run])
    shared = {
        "gen_ai.conversation.id": str(run.session_id),
        "gen_ai.agent.name": "Helper",
        names.TENANT_ID: str(run.tenant_id),
        names.AGENT_ID: str(run.agent_id),
        names.SESSION_ID: str(run.session_id),
        names.RUN_ID: str(run.id),
        "session.id": str(run.session_id),
        "user.id": str(run.created_by),
        "langfuse.trace.name": "Helper",
        "langfuse.session.id": str(run.session_id),
        "langfuse.user.id": str(run.created_by),
        "langfuse.trace.tags": ("helper", "main"),
        "langfuse.trace.metadata.tenant_id": str(run.tenant_id),
        "langfuse.trace.metadata.agent_id": str(run.agent_id),
        "langfuse.trace.metadata.run_id": str(run.id),
    }
    own: dict[str, dict[str, object]] = {
        "invoke_agent": {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.id": str(run.agent_id),
            "gen_ai.provider.name": "fake",
            "gen_ai.request.model": "model-1",
            "hango.lane": "main",
            "hango.run.state": "succeeded",
            "hango.request.trace_id": "a" * 32,
            "langfuse.observation.type": "agent",
            "openinference.span.kind": "AGENT",
        },
        "chain": {
            "hango.turn": 2,
            "langfuse.observation.type": "chain",
            "openinference.span.kind": "CHAIN",
        },
        "chat": {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "fake",
            "gen_ai.request.model": "model-1",
            "gen_ai.request.stream": True,
            "gen_ai.response.finish_reasons": ("stop",),
            "gen_ai.usage.input_tokens": 100,
            "gen_ai.usage.cache_write.input_tokens": 10,
            "gen_ai.usage.reasoning.output_tokens": 5,
            "llm.token_count.total": 120,
            "langfuse.observation.type": "generation",
            "openinference.span.kind": "LLM",
        },
        "execute_tool": {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "noon",
            "gen_ai.tool.call.id": "call_1",
            "gen_ai.tool.type": "function",
            "langfuse.observation.type": "tool",
            "openinference.span.kind": "TOOL",
        },
    }
    by_kind = {span.name.partition(" ")[0]: span for span in spans}  # the last of each
    for kind, expected in own.items():
        found = dict(by_kind[kind].attributes or {})
        assert expected.items() | shared.items() <= found.items(), kind
        assert set(map(type, found.values())) <= {str, bool, int, float, tuple}
    details = json.loads(str(attribute(by_kind["chat"], "langfuse.observation.usage_details")))
    assert details == {
        "input": 50,
        "input_cached_tokens": 40,
        "input_cache_creation": 10,
        "output": 20,
    }
    first = attribute(by_kind["chat"], "gen_ai.response.time_to_first_chunk")
    assert isinstance(first, float)
    (link,) = by_kind["invoke_agent"].links
    assert (f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") == ("a" * 32, "b" * 16)


async def test_a_cancelled_run_says_so_in_every_span_that_was_open(world: SeededTenant) -> None:
    """It is nobody's error: no status, but the reason."""
    gate = BlockingTool()
    with recorded() as spans:
        async with started_worker(world, FakeProvider([answer(call("hold"))]), gate.tool):
            run = await world.run(await world.session())
            await gate.entered.wait()
            await world.runs.cancel(world.scope(), run.id)
            (run,) = await until(world, [run])
    assert tree(spans, run.trace_id) == [
        f"{ROOT} ~cancelled +run.claimed",
        f"{CHAIN} ~cancelled",
        CHAT,
        "    execute_tool hold I ~cancelled",
    ]
    assert run.state is RunState.CANCELLED


async def test_a_drain_ends_the_trace_and_the_next_execution_links_to_it(world: SeededTenant) -> None:
    """The turn that was cut short is made again, under another root of the same trace."""
    gate, hurried = BlockingTool(), attrs.evolve(SETTINGS, drain_timeout=0.0)
    with recorded() as spans:
        async with started_worker(
            world, FakeProvider([answer(call("hold"))]), gate.tool, settings=hurried
        ):
            run = await world.run(await world.session())
            await gate.entered.wait()
            released = await world.reload(run)
        gate.open.set()
        async with started_worker(world, FakeProvider([answer(text("done"))]), gate.tool):
            (run,) = await until(world, [run])
    assert tree(spans, run.trace_id) == [
        f"{ROOT} ~released +run.claimed",
        f"{CHAIN} ~released",
        CHAT,
        "    execute_tool hold I ~released",
        f"{ROOT} +run.claimed",
        CHAIN,
        "    execute_tool hold I",
        CHAIN,
        CHAT,
    ]
    assert _linked(spans[-3:] + spans) == {released.span_id}
    assert run.span_id != released.span_id


async def test_a_run_that_was_taken_back_says_from_whom(world: SeededTenant) -> None:
    """A process died with it: the next root has the owner before it and the turn it goes on from."""
    dead = world.queue()
    run = await world.run(await world.session())
    assert (claim := await dead.claim_next(run.session_id))
    await world.lapse(run)
    assert await world.queue().sweep() == 1
    before = counted(names.RUN_ENDED, state="succeeded")
    with recorded() as spans:
        async with started_worker(world, FakeProvider([answer(text("done"))])):
            (run,) = await until(world, [run])
    assert tree(spans, run.trace_id) == [f"{ROOT} +run.claimed +run.reclaimed", CHAIN, CHAT]
    (root,) = (span for span in spans if span.parent is None)
    reclaimed = dict(root.events[1].attributes or {})
    assert reclaimed == {"hango.previous_owner.id": str(dead.owner_id), "hango.resume_turn": 0}
    assert _linked(spans) == {claim.run.span_id}
    assert counted(names.RUN_ENDED, state="succeeded") == before + 1


async def test_a_gate_that_rejects_is_an_event_of_its_turn(world: SeededTenant) -> None:
    """So is one that accepts in the end."""
    gated = await make_seeded_tenant(world.pool, "gated", completion=Gate("twice", 3))
    verdicts = iter([(False, "not yet"), (True, "")])

    def twice(_result: object) -> tuple[bool, str]:
        return next(verdicts)

    with recorded() as spans:
        provider = FakeProvider([answer(text("done?")), answer(text("done"))])
        async with started_worker(gated, provider, verifiers={"twice": twice}):
            (run,) = await until(gated, [await gated.run(await gated.session())])
    assert tree(spans, run.trace_id) == [
        f"{ROOT} +run.claimed",
        f"{CHAIN} +gate.rejected",
        CHAT,
        f"{CHAIN} +gate.passed",
        CHAT,
    ]


@pytest.mark.parametrize("is_recorded", [False, True])
async def test_content_is_in_spans_only_if_it_is_asked_for(
    world: SeededTenant, *, is_recorded: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A marker in prompt, answer, arguments, result, name of a tool and error; and in no log line."""

    @tool(effects=Effects.READ_ONLY)
    async def echo(said: str) -> Result:
        """Return what was said as an error."""
        return Result(said, is_error=True)

    answers = [
        answer(text("MARKER"), call("echo", {"said": "MARKER"}), call("MARKER", {"MARKER": 1})),
        failing(ProviderError("MARKER", code="MARKER x")),
    ]
    content.record(on=is_recorded)
    try:
        with recorded() as spans:
            async with started_worker(world, FakeProvider(answers), echo):
                run = await world.run(await world.session(), "MARKER")
                await until(world, [run])
    finally:
        content.record(on=False)
    exported = "".join(span.to_json() for span in spans)
    assert ("MARKER" in exported) is is_recorded
    if is_recorded:
        assert {"gen_ai.input.messages", "gen_ai.output.messages"} <= _attributes(spans, "chat")
        assert "gen_ai.tool.call.result" in _attributes(spans, "execute_tool")
    else:
        assert not [line for line in caplog.records if "MARKER" in f"{line.getMessage()} {vars(line)}"]


def _attributes(spans: Sequence[ReadableSpan], kind: str) -> set[str]:
    return {name for span in spans if span.name.startswith(kind) for name in span.attributes or {}}


def _id(spans: Sequence[ReadableSpan], line: str) -> str:
    (root,) = (span for span in spans if span.parent is None and line.startswith(span.name))
    return f"{root.context.span_id:016x}"


def _linked(spans: Sequence[ReadableSpan]) -> set[str]:
    """Return the ids of the spans that roots link to."""
    return {f"{link.context.span_id:016x}" for span in spans for link in span.links}
