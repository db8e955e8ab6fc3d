"""Spans pushed over OTLP by a real process, and collectors that are down, stall or talk nonsense."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import trio
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from hango.telemetry.exporting import pushed

from support.processes import hango, started

Receiver = Callable[[trio.SocketStream], Awaitable[None]]
ACCEPTED = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n"


class Collector:
    """Takes spans; keeps what was sent."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def receive(self, stream: trio.SocketStream) -> None:
        """Answer every request of a connection."""
        data = b""
        while more := await stream.receive_some():
            data += more
            head, end, rest = data.partition(b"\r\n\r\n")
            if not end:
                continue
            fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
            if len(rest) >= (length := int(fields[b"content-length"])):
                if head.startswith(b"POST /v1/traces "):
                    self.bodies.append(rest[:length])
                await stream.send_all(ACCEPTED)
                data = rest[length:]


async def _stall(stream: trio.SocketStream) -> None:
    """Take all, and answer nothing."""
    while await stream.receive_some():
        pass


async def _nonsense(stream: trio.SocketStream) -> None:
    """Answer what is no HTTP."""
    await stream.receive_some()
    await stream.send_all(b"\x00\xff" * 1000)


async def _hang_up(stream: trio.SocketStream) -> None:
    """Read a little, and close."""
    await stream.receive_some(10)


async def test_a_collector_gets_the_whole_tree_of_a_run(database: str) -> None:
    """Over OTLP/HTTP, by the standard variables alone; the trace is the one that the command prints."""
    collector = Collector()
    async with trio.open_nursery() as nursery:
        endpoint = await _listen(nursery, collector.receive)
        done = await hango(
            "run",
            "What time is it in Tokyo?",
            HANGO_DATABASE_URL=database,
            OTEL_EXPORTER_OTLP_ENDPOINT=endpoint,
            OTEL_SERVICE_NAME="my-agents",
        )
        nursery.cancel_scope.cancel()
    assert done.code == 0, done.err
    spans, service = [], ""
    for body in collector.bodies:
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            found = {item.key: item.value.string_value for item in resource.resource.attributes}
            service = found["service.name"]
            spans += [span for scope in resource.scope_spans for span in scope.spans]
    assert service == "my-agents"
    names = {span.span_id: span.name for span in spans}
    edges = {(names.get(span.parent_span_id, ""), span.name) for span in spans}
    root, chat = "invoke_agent demo", next(name for name in names.values() if name.startswith("chat"))
    assert {edge for edge in edges if not edge[0]} == {("", root)}
    assert edges >= {(root, "chain"), ("chain", chat), ("chain", "execute_tool get_time")}
    trace = next(line for line in done.err.splitlines() if line.startswith("trace "))
    assert {span.trace_id.hex() for span in spans} == {trace.removeprefix("trace ")}


@pytest.mark.parametrize("receiver", [None, _stall, _nonsense, _hang_up])
async def test_a_collector_that_does_not_work_costs_no_run(
    database: str, receiver: Receiver | None
) -> None:
    """G06: down, stalling, nonsense, hanging up: the run succeeds, and the process ends."""
    async with trio.open_nursery() as nursery:
        endpoint = "http://127.0.0.1:9" if receiver is None else await _listen(nursery, receiver)
        settings = {"HANGO_DATABASE_URL": database, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
        done = await hango("run", "What time is it?", **settings)
        nursery.cancel_scope.cancel()
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER: must be otlp or none"),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL: must be http/protobuf",
        ),
    ],
)
async def test_what_cannot_be_exported_is_said_at_the_start(
    database: str, variables: dict[str, str], said: str
) -> None:
    """One line that names the variable, and the exit code of wrong settings."""
    done = await hango("run", "hi", HANGO_DATABASE_URL=database, **variables)
    assert done.code == 2
    assert said in done.err


@pytest.mark.parametrize(
    ("variables", "traces", "metrics"),
    [
        ({}, False, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, True, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, True, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_METRICS_EXPORTER": "none"}, True, False),
        ({"OTEL_METRICS_EXPORTER": "otlp"}, False, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}, False, False),
    ],
)
def test_what_is_pushed_is_what_an_endpoint_is_set_for(
    variables: dict[str, str], *, traces: bool, metrics: bool
) -> None:
    """Nothing without one, whatever the standard's default is."""
    found = pushed(variables)
    assert (found.traces, found.metrics) == (traces, metrics)


async def test_ps_says_which_host_and_pid_an_owner_is(database: str) -> None:
    """One line for each process, with its role and whether it is alive."""
    settings = {"HANGO_DATABASE_URL": database, "HANGO_ROLE": "worker"}
    async with started("serve", **settings) as process:
        await process.line("executing runs")
        alive = await hango("ps", HANGO_DATABASE_URL=database)
    assert alive.code == 0, alive.err
    (line,) = (line for line in alive.out.splitlines() if " alive " in line)
    assert f" pid {process.process.pid} " in line
    assert " worker " in line


async def _listen(nursery: trio.Nursery, receiver: Receiver) -> str:
    listeners = await nursery.start(_serve, receiver)
    return f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"


async def _serve(receiver: Receiver, task_status: trio.TaskStatus[list[trio.SocketListener]]) -> None:
    async def handle(stream: trio.SocketStream) -> None:
        async with stream:
            with suppress(trio.BrokenResourceError):
                await receiver(stream)

    await trio.serve_tcp(handle, 0, host="127.0.0.1", task_status=task_status)
