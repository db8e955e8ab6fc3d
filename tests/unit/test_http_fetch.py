"""http_fetch against real servers: what is asked for, what is refused, and what comes back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from ipaddress import ip_address

import pytest
import trio
import trio.testing

from hango.domain import Effects, Result, ToolUseBlock
from hango.testing import MemoryLedger
from hango.tools import AllowedHosts, Registry, builtin_tools
from hango.tools.builtin import http_fetch as module
from hango.tools.builtin import make_http_fetch
from hango.tools.fetch import SystemResolver

from support.browser import CONTEXT, Browser, Names, browser, fetched, refused
from support.web_server import moved, ok, serve, trusting

pytestmark = pytest.mark.rule(22)

# --- the good case --------------------------------------------------------------------------


def test_it_may_run_again() -> None:
    """Asking twice does no harm."""
    assert make_http_fetch(AllowedHosts()).effects is Effects.READ_ONLY


async def test_status_type_and_text_come_back(nursery: trio.Nursery) -> None:
    """In that order, for a model to read."""
    result = await fetched(nursery, ok("grüß dich".encode(), kind="text/html; charset=utf-8"))
    assert result == Result("status: 200 OK\ntype: text/html; charset=utf-8\n\ngrüß dich")


async def test_a_status_is_news_and_no_error(nursery: trio.Nursery) -> None:
    """The model decides what a 404 means."""
    result = await fetched(nursery, ok(b"gone", status="404 Whatever It Says"))
    assert result == Result("status: 404 Not Found\ntype: text/plain\n\ngone")


async def test_the_request_has_only_what_it_needs(nursery: trio.Nursery) -> None:
    """GET, the name in Host, and nothing that tells who asks; the connection closes."""
    server = await serve(nursery, {"/p?q=%C3%BC": ok(b"")})
    await browser(server).get(f"http://GOOD.test.:{server.port}/p?q=ü#part")
    lines = server.requests[0].decode().rstrip().split("\r\n")
    assert lines[0] == "GET /p?q=%C3%BC HTTP/1.1"
    headers = dict(line.lower().split(": ", 1) for line in lines[1:])
    assert headers.pop("user-agent").startswith("hango/")
    assert headers == {
        "host": f"good.test:{server.port}",
        "accept": "*/*",
        "accept-encoding": "gzip, deflate",
        "connection": "close",
    }


async def test_proxies_netrc_and_cookies_are_ignored(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]
) -> None:
    """E15: nothing in the environment changes where a request goes or what is in it."""
    netrc = os.path.join(tmp_path, "netrc")  # noqa: PTH118  # one string is enough
    with open(netrc, "w") as file:  # noqa: ASYNC230, PTH123  # a small file of a test
        file.write("default login me password s3cr3t\n")
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    monkeypatch.setenv("NETRC", netrc)
    page = "HTTP/1.1 302 Found\r\nSet-Cookie: a=b; Path=/\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n"
    server = await serve(nursery, {"/": page.encode(), "/b": ok(b"here")})
    result = await browser(server).get(f"http://good.test:{server.port}/")
    assert result.for_llm.endswith("here")
    assert all(b"ookie" not in head and b"uthorization" not in head for head in server.requests)


async def test_https_asks_for_the_name_and_checks_it(nursery: trio.Nursery) -> None:
    """E08: connected to an address, the certificate must still be the name's."""
    server = await serve(nursery, {"/": ok(b"private")}, tls=True)
    good = browser(server)
    good.certificates = trusting()
    result = await good.get(f"https://good.test:{server.port}/")
    assert result.for_llm.endswith("private")
    assert server.names == ["good.test"]
    other = browser(server, host="other.test")
    other.certificates = trusting()
    assert refused(await other.get(f"https://other.test:{server.port}/"), "no connection")
    assert refused(await browser(server).get(f"https://good.test:{server.port}/"), "no connection")
    assert len(server.requests) == 1


async def test_ipv6_works(nursery: trio.Nursery) -> None:
    """By name and by address."""
    server = await serve(nursery, {"/": ok(b"six")}, host="::1")
    by_name = Browser([f"six.test:{server.port}"], Names({"six.test": [["::1"]]}))
    assert (await by_name.get(f"http://six.test:{server.port}/")).for_llm.endswith("six")
    by_address = Browser([f"[::1]:{server.port}"], Names({}))
    assert (await by_address.get(f"http://[::1]:{server.port}/")).for_llm.endswith("six")
    assert b"host: [::1]:" in server.requests[1].lower()


async def test_the_next_address_is_tried_when_one_is_dead(nursery: trio.Nursery) -> None:
    """All of them checked before, in the resolver's order."""
    server = await serve(nursery, {"/": ok(b"alive")})
    names = Names({"good.test": [["::1", "127.0.0.1"]]})
    result = await Browser([f"good.test:{server.port}"], names).get(f"http://good.test:{server.port}/")
    assert result.for_llm.endswith("alive")


# --- where it does not go -------------------------------------------------------------------


async def test_a_host_that_is_not_listed_is_not_even_resolved(nursery: trio.Nursery) -> None:
    """E07: the list comes first; an empty one allows nothing."""
    server = await serve(nursery)
    names = Names({"good.test": [["127.0.0.1"]]})
    for allowed in ([], ["other.test"], ["good.test"], [f"*.good.test:{server.port}"]):
        result = await Browser(allowed, names).get(f"http://good.test:{server.port}/")
        assert refused(result, "good.test", "not among the hosts")
    assert not names.asked
    assert not server.requests


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "http://127.1/", "http://a@good.test/", "http:good.test", "nonsense", "\0"],
)
async def test_a_url_that_is_refused_is_an_error_result(url: str) -> None:
    """E04, E06, E14: with the reason, for the model to do better."""
    assert refused(await Browser(["good.test"], Names({})).get(url))


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/", "http://[::1]/", "http://169.254.169.254/", "http://[::ffff:7f00:1]/"]
)
async def test_listing_a_private_address_does_not_open_it(url: str) -> None:
    """E01: the allow-list names hosts, it does not make them public."""
    host = url.removeprefix("http://").removesuffix("/")
    result = await Browser([host], Names({}), public_only=True).get(url)
    assert refused(result, "not on the public internet")


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["::ffff:127.0.0.1"],
        ["64:ff9b::7f00:1"],
        ["8.8.8.8", "10.0.0.1"],
        ["10.0.0.1", "8.8.8.8"],
        ["2001:4860:4860::8888", "fe80::1%eth0"],
        ["8.8.8.8"] * 10 + ["192.168.0.1"],
    ],
)
async def test_a_name_with_any_private_address_is_refused(addresses: list[str]) -> None:
    """E01, E02, E08: whichever of them would have been used."""
    names = Names({"good.test": [addresses]})
    result = await Browser(["good.test"], names, public_only=True).get("http://good.test/")
    assert refused(result, "not on the public internet")
    assert addresses[0] not in result.for_llm


@pytest.mark.parametrize("answers", [[], [["nonsense"]], [[]], [["127.0.0.1", "300.1.1.1"]]])
async def test_a_name_without_an_address_is_an_error_result(answers: list[Sequence[str]]) -> None:
    """E08: also when the resolver talks nonsense."""
    result = await Browser(["good.test"], Names({"good.test": answers})).get("http://good.test/")
    assert refused(result, "no address was found")


async def test_a_name_is_resolved_once_and_what_was_checked_is_used(nursery: trio.Nursery) -> None:
    """E08: a name that changes its mind gets no second question."""
    server = await serve(nursery, {"/": ok(b"first")})
    names = Names({"good.test": [["127.0.0.1"], ["10.0.0.1"]]})
    result = await Browser([f"good.test:{server.port}"], names).get(f"http://good.test:{server.port}/")
    assert result.for_llm.endswith("first")
    assert names.asked == ["good.test"]


async def test_nothing_in_the_environment_permits_loopback(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E15: the tool as the server makes it refuses it, whatever is set."""
    server = await serve(nursery, {"/": ok(b"inside")})
    for name in ("HANGO_TEST", "HANGO_DEBUG", "HANGO_DEV", "HANGO_TEST_DATABASE_URL", "DEBUG", "CI"):
        monkeypatch.setenv(name, "1")
    registry = Registry()
    for each in builtin_tools(http_fetch_allowed_hosts=[f"localhost:{server.port}"]):
        registry.register(each)
    view = registry.view([], timeout=30, result_limit=10_000)
    call = ToolUseBlock("c", "http_fetch", {"url": f"http://localhost:{server.port}/"})
    assert refused(await view.call(call, CONTEXT, MemoryLedger()), "not on the public internet")
    assert not server.requests


async def test_the_system_s_resolver_knows_this_machine() -> None:
    """A thread asks, and a name that does not exist is an OSError."""
    resolve = SystemResolver()
    found = await resolve("localhost")
    assert found
    assert all(ip_address(each).is_loopback for each in found)
    with pytest.raises(OSError, match=r"."):
        await resolve("no-such-name.invalid")


# --- redirects ------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_followed_to_allowed_hosts(nursery: trio.Nursery, status: int) -> None:
    """E09: each hop resolved and checked anew, the last place told."""
    second = await serve(nursery, {"/there": ok(b"arrived")})
    first = await serve(nursery, {"/": moved(f"http://other.test:{second.port}/there", status)})
    names = Names({"good.test": [["127.0.0.1"]], "other.test": [["127.0.0.1"]]})
    tool = Browser([f"good.test:{first.port}", f"other.test:{second.port}"], names)
    result = await tool.get(f"http://good.test:{first.port}/")
    there = f"http://other.test:{second.port}/there"
    assert result == Result(f"status: 200 OK\ntype: text/plain\nredirected to: {there}\n\narrived")
    assert names.asked == ["good.test", "other.test"]
    assert b"good.test" not in second.requests[0]


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("http://169.254.169.254/latest/meta-data/", "not among the hosts"),
        ("//127.0.0.1/", "not among the hosts"),
        ("http://evil.test/", "not among the hosts"),
        ("http://good.test:22/", "not among the hosts"),
        ("http://rebound.test/", "not on the public internet"),
        ("file:///etc/passwd", "only http"),
        ("http://user:pass@good.test/", "user name"),
        ("http://good.test\\@evil.test/", "not a URL"),
        ("http://127.1/", "not an address"),
        ("http://[::1", "not a URL"),
        ("/loop", "redirects more than"),
    ],
)
async def test_a_redirect_to_where_it_may_not_go_is_refused(
    nursery: trio.Nursery, location: str, reason: str
) -> None:
    """E09: address, host, port, scheme and number of hops are held to at every hop."""
    server = await serve(nursery, {"/": moved(location), "/loop": moved("/loop")})
    tool = browser(server)
    tool.allowed = [*tool.allowed, "rebound.test"]
    tool.names.answers["rebound.test"] = [["10.0.0.1"]]
    assert refused(await tool.get(f"http://good.test:{server.port}/"), reason)
    assert len(server.requests) <= module.MAX_REDIRECTS + 1


async def test_a_redirect_from_https_to_http_is_refused(nursery: trio.Nursery) -> None:
    """E09: the second server is never asked."""
    plain = await serve(nursery)
    secure = await serve(nursery, {"/": moved(f"http://good.test:{plain.port}/")}, tls=True)
    tool = browser(plain, secure)
    tool.certificates = trusting()
    assert refused(await tool.get(f"https://good.test:{secure.port}/"), "https to http")
    assert not plain.requests


async def test_a_redirect_without_a_location_is_an_answer(nursery: trio.Nursery) -> None:
    """E09: there is nowhere to go, so what came is shown."""
    result = await fetched(nursery, ok(b"choose", status="302 Found"))
    assert result == Result("status: 302 Found\ntype: text/plain\n\nchoose")
