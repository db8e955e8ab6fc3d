"""Text that no database holds, in every place a model, a tool or a client can put it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import httpx
import pytest

from hango.codec import clean_text
from hango.domain import (
    Effects,
    OpaqueBlock,
    ProviderRequest,
    Result,
    Role,
    Run,
    Session,
    TextBlock,
)
from hango.errors import UnsupportedStop
from hango.testing import Answer, FakeProvider, answer, broken, call, failing, text, thinking
from hango.tools import tool

from support.api import Api
from support.workers import started_worker, until

pytestmark = pytest.mark.rule(20)

TEXTS: dict[str, tuple[str, str | None]] = {
    # what is said, and what is kept of it; None for all of it
    "nul": ("a\0b", "a\ufffdb"),
    "only nul": ("\0", "\ufffd"),
    "high half": ("a\ud83cb", "a\ufffdb"),
    "low half": ("\udf0d", "\ufffd"),
    "halves swapped": ("\udf0d\ud83c", "\ufffd\ufffd"),
    "literal escape of nul": (r"a\u0000b", None),
    "literal escape of a half": (r"a\ud800b", None),
    "literal and real": ("\\u0000\0\\\0", "\\u0000\ufffd\\\ufffd"),
    "controls": ("".join(map(chr, range(1, 32))) + "\x7f", None),
    "noncharacters": ("\ufdd0\ufffe\uffff\U0010ffff", None),
    "marks and directions": ("\ufeffa\u202eb\u2028c\u2029d", None),
    "quotes and braces": ("\"'`{}[]$1%s;--</script>", None),
    "astral": ("🌍 naïve 東", None),
}


@tool(effects=Effects.READ_ONLY)
async def echo(said: str, more: dict[str, list[str]]) -> Result:
    """Say to the model and to people what was said, and under which names."""
    return Result(said + "|" + "|".join(more), for_user=said * 2)


@tool(effects=Effects.READ_ONLY)
def data(said: str) -> object:
    """Return it inside of data, also as a name."""
    return {said: [said]}


@tool(effects=Effects.READ_ONLY)
def fail(said: str) -> object:
    """Fail with it."""
    raise ValueError(said)


def asked(request: ProviderRequest) -> str | None:
    """Return what the user said last; None when tools have answered since."""
    texts = [block.text for block in request.messages[-1].content if isinstance(block, TextBlock)]
    return texts[-1] if texts else None


def say(said: str) -> Answer:
    """Say it in all ways a model can."""
    return answer(
        thinking(f"hm {said}", "signed"),
        thinking("hm", f"signed {said}"),
        OpaqueBlock("fake", {f"k{said}": [said]}),
        text(f"said: {said}"),
        call("echo", {"said": said, "more": {f"k{said}": [said]}}, id=f"id{said}"),
        call("data", {"said": said}, id="b"),
        call("fail", {"said": said}, id="c"),
        call(f"no{said}", {f"k{said}": said}, id="d"),
        call("echo", {f"k{said}": said}, id="e"),
    )


async def play(api: Api, provider: FakeProvider, said: Sequence[tuple[Session, str]]) -> list[Run]:
    """Execute one run for each prompt, in its session; return how they ended."""
    async with started_worker(api.acme, provider, echo, data, fail):
        runs = [await api.acme.run(session, words, role=Role.MEMBER) for session, words in said]
        ended = await until(api.acme, runs)
    assert provider.complaints == []
    return ended


async def read(client: httpx.AsyncClient, run: Run) -> list[dict[str, object]]:
    """Read the messages of a run's session."""
    answered = await client.get(f"/v1/sessions/{run.session_id}/messages?limit=200")
    assert answered.status_code == 200
    found: list[dict[str, object]] = answered.json()["data"]
    return found


def strings(value: object) -> Iterator[str]:
    """Yield every text in JSON, names included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from (name, *strings(item))
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def clean(value: object) -> bool:
    """Whether all there is in JSON is what a database holds."""
    return all(clean_text(each) == each for each in strings(value))


async def test_every_text_survives_every_way_through_a_run(api: Api) -> None:
    """C01: model, tool, error, name or key: stored, readable, and mended only where it must be."""

    def script(request: ProviderRequest) -> Answer:
        name = asked(request)
        return say(TEXTS[name][0]) if name else answer(text("done"))

    ended = await play(api, FakeProvider(script), [(await api.session(), name) for name in TEXTS])
    assert {run.state.value for run in ended} == {"succeeded"}
    async with api.as_role(Role.MEMBER) as client:
        for run, (name, (said, kept)) in zip(ended, TEXTS.items(), strict=True):
            spoken, results = (message["content"] for message in (await read(client, run))[1:3])
            assert spoken == spoken_as(kept or said, whole=kept is None), name
            assert told(results) == told_as(kept or said), name
            assert clean([spoken, results]), name


def spoken_as(kept: str, *, whole: bool) -> list[dict[str, object]]:
    """Return the answer as it is to be stored; what is not *whole* keeps no signature and no id."""
    calls: list[tuple[str, str, dict[str, object]]] = [
        (f"id{kept}" if whole else "call_1_0", "echo", {"said": kept, "more": {f"k{kept}": [kept]}}),
        ("b", "data", {"said": kept}),
        ("c", "fail", {"said": kept}),
        ("d", f"no{kept}", {f"k{kept}": kept}),
        ("e", "echo", {f"k{kept}": kept}),
    ]
    return [
        {"type": "thinking", "thinking": f"hm {kept}", "signature": "signed" if whole else ""},
        {"type": "thinking", "thinking": "hm", "signature": f"signed {kept}" if whole else ""},
        {"type": "opaque", "provider": "fake", "raw": {f"k{kept}": [kept]}},
        {"type": "text", "text": f"said: {kept}"},
        *[tool_use(*each) for each in calls],
    ]


def tool_use(call_id: str, name: str, given: dict[str, object]) -> dict[str, object]:
    """Return a call as it is stored."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def told(results: object) -> list[object]:
    """Return what tools that ran say, and whether the two calls that did not are errors in words."""
    assert isinstance(results, list)
    parts = [(result["content"], result["is_error"], result.get("for_user")) for result in results]
    return [*parts[:3], *(is_error and bool(content) for content, is_error, _ in parts[3:])]


def told_as(kept: str) -> list[object]:
    """Return what the results are to say."""
    listed = json.dumps({kept: [kept]}, ensure_ascii=False, separators=(",", ":"))
    failed = f"ValueError: {kept}"
    return [
        (f"{kept}|k{kept}", False, kept * 2),
        (listed, False, None),
        (failed, True, None),
        True,
        True,
    ]


@pytest.mark.parametrize("ending", ["raised", "broken off"])
async def test_a_run_that_ends_in_such_text_ends_and_its_session_goes_on(api: Api, ending: str) -> None:
    """C01, A13: the error and what had arrived are stored, and the next run is accepted."""

    def script(request: ProviderRequest) -> Answer:
        name = asked(request)
        if name not in TEXTS:
            return answer(text("well"))
        said = text(f"said: {TEXTS[name][0]}!")
        stop = UnsupportedStop(f"pause: {TEXTS[name][0]}", code="pause_turn")
        return failing(stop, said) if ending == "raised" else broken(said)

    ended = await play(api, FakeProvider(script), [(await api.session(), name) for name in TEXTS])
    async with api.as_role(Role.MEMBER) as client:
        for run, (said, kept) in zip(ended, TEXTS.values(), strict=True):
            shown = (await client.get(f"/v1/runs/{run.id}")).json()
            *_, partial = await read(client, run)
            assert shown["state"] == "failed"
            assert (
                ending != "raised" or shown["error"]["message"] == f"pause_turn: pause: {kept or said}"
            )
            assert partial["partial"] is True
            assert partial["content"] == [{"type": "text", "text": f"said: {kept or said}!"}]
            assert clean([shown, partial])
    sessions = [await api.acme.sessions.get(api.acme.scope(), run.session_id) for run in ended]
    later = await play(api, FakeProvider(script), [(session, "again") for session in sessions])
    assert {run.state.value for run in later} == {"succeeded"}


NAUGHTY = r"a\\u0000b\u0000c\ud83c"  # in JSON: a literal escape, a real one, and half a character
KEPT = "a\\u0000b\ufffdc\ufffd"


async def test_what_clients_name_is_mended_too(api: Api) -> None:
    """C01, F04: names, titles, prompts and messages; a slug has an alphabet of its own."""
    session = await api.session()
    agent = b'{"slug":"s%s","name":"X","provider":"fake","model":"X","system_prompt":"X"}'
    block = b'{"type":"tool_use","id":"X","name":"X","input":{"X":["X"]}}'
    places = {
        "/v1/agents": (201, agent % b""),
        "/v1/sessions": (201, b'{"agent_id":"%s","title":"X"}' % str(api.acme.agent.id).encode()),
        f"/v1/sessions/{session.id}/messages": (201, b'{"role":"assistant","content":[%s]}' % block),
        f"/v1/sessions/{session.id}/runs": (202, b'{"input":"X"}'),
    }
    async with api.as_role(Role.ADMIN) as admin:
        admin.headers["Content-Type"] = "application/json"
        for place, (status, body) in places.items():
            made = await admin.post(place, content=body.replace(b"X", NAUGHTY.encode()))
            assert made.status_code == status, made.text
            said = list(strings(made.json()))
            assert said.count(KEPT) == body.count(b'"X"'), place
            assert all(map(clean, said)), place
        refused = await admin.post("/v1/agents", content=agent % rb"\u0000")
        assert refused.status_code == 422
