"""URLs: one strict parse, and one spelling of a host for all that follows."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hango.errors import InvalidInput
from hango.tools.fetch import Target
from hango.tools.fetch.targets import MAX_URL

pytestmark = pytest.mark.rule(22)


# --- URLs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("http://example.com", "http://example.com/"),
        ("HTTP://EXAMPLE.com.:80/A?b#c", "http://example.com/A?b"),
        ("https://example.com:443?q=1", "https://example.com/?q=1"),
        ("https://example.com:8443/", "https://example.com:8443/"),
        ("http://bücher.test/ü?ä=%20&x=[1]", "http://xn--bcher-kva.test/%C3%BC?%C3%A4=%20&x=[1]"),
        ("http://xn--bcher-kva.test/", "http://xn--bcher-kva.test/"),
        ("http://8.8.8.8/", "http://8.8.8.8/"),
        ("http://[2001:4860:4860:0:0:0:0:8888]:8080/", "http://[2001:4860:4860::8888]:8080/"),
        ("http://[::FFFF:127.0.0.1]/", "http://[::ffff:7f00:1]/"),
        ("http://my_host.example.com/", "http://my_host.example.com/"),
        ("http://example.com/%2e%2e/a//b/../c", "http://example.com/%2e%2e/a//b/../c"),
    ],
)
def test_a_url_has_one_canonical_spelling(url: str, canonical: str) -> None:
    """E07: lower case, no final dot, ASCII; and it is a fixed point."""
    target = Target.parse(url)
    assert target.url in (canonical, str(ip_in(canonical)))
    assert Target.parse(target.url) == target


def ip_in(url: str) -> str:
    """Return *url* with its address as this Python spells it."""
    host = urlsplit(url).hostname or ""
    return url.replace(host, str(ip_address(host))) if ":" in host else url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "//example.com/",
        "http:good.test",
        "http:/good.test",
        "http:///good.test",
        "http://",
        "http://:80/",
        "http://good.test\\@evil.test/",
        "http://good.test:80@evil.test/",
        "http://good.test#@evil.test:x/",
        "http://good.test?@evil.test/",
        "http://evil.test@good.test#/",
        "http://user:password@good.test/",
        "http://@good.test/",
        "http://evil.test%23.good.test/",
        "http://good.test%00/",
        " http://good.test/",
        "http://good.test/ ",
        "http://good.test/a b",
        "http://good\t.test/",
        "ht\ntp://good.test/",
        "http://good.test/\r\nHost: evil.test",
        "http://good.test/\0",
        "http://good.test/\x7f",
        "http://good.test\u2028/",
        "http://[fe80::1%25eth0]/",
        "http://[fe80::1%eth0]/",
        "http://[v1.x]/",
        "http://[::1/",
        "http://::1/",
        "http://[::1]x/",
        "http://[8.8.8.8]/",
        "http://[]/",
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(url: str) -> None:
    """E06: no user names, no backslashes, no control characters, no zone ids, no missing slashes."""
    with pytest.raises(InvalidInput):
        Target.parse(url)


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://good.test/",
        "gopher://good.test:70/1",
        "data:text/plain,hello",
        "http+unix://%2Fvar%2Frun%2Fdocker.sock/",
        "javascript:alert(1)",
        "ws://good.test/",
        "http://good.test:0/",
        "http://good.test:65536/",
        "http://good.test:99999999999999999999/",
        "http://good.test:0x50/",
        "http://good.test:-80/",
        "http://good.test:+80/",
        "http://good.test: 80/",
        "http://good.test:80:80/",
        "http://good.test:/",
        "http://good.test:\uff18\uff10/",
        "http://good.test:٨٠/",
        "http://good.test/" + "a" * MAX_URL,
    ],
)
def test_other_schemes_and_odd_ports_are_refused(url: str) -> None:
    """E14: http and https, and ports in plain digits."""
    with pytest.raises(InvalidInput):
        Target.parse(url)


@pytest.mark.parametrize(
    "host",
    [
        "127.1",
        "127.0.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0x",
        "0177.0.0.1",
        "017700000001",
        "0",
        "127.000.000.001",
        "127.0.0.1.2",
        "256.256.256.256",
        "good.0x7f",
        "1.2.3.4.",
        "\uff11\uff12\uff17.0.0.1",
        "①②⑦.0.0.1",
        "127。0。0。1",
        "127\uff0e0\uff0e0\uff0e1",
        "127｡0｡0｡1",
    ],
)
def test_odd_spellings_of_addresses_are_refused(host: str) -> None:
    """E04: an address is written in its plain form, or it is none."""
    if host == "1.2.3.4.":  # the final dot alone is no other spelling
        assert Target.parse(f"http://{host}/").host == "1.2.3.4"
        return
    with pytest.raises(InvalidInput):
        Target.parse(f"http://{host}/")


@pytest.mark.parametrize(
    "host",
    [
        "exa\u00admple.com",
        "exa\u212ample.com",
        "\uff45xample.com",
        "exampl\u200be.com",
        "exa\u200dmple.com",
        "xn--ls8h\u00ad.com",
        "xn--a.com",
        "xn---.com",
        "-a.com",
        "a-.com",
        "a..com",
        ".com",
        "..",
        ".",
        "a" * 64 + ".com",
        ".".join(["a" * 60] * 5),
        "*.example.com",
        "exa mple.com",
        "exa,mple.com",
        "exa'mple.com",
        "BÜCHER.test",
        "a\u3002com",
    ],
)
def test_names_that_would_turn_into_others_are_refused(host: str) -> None:
    """E07: no character is dropped, folded or mapped, beyond A to Z."""
    with pytest.raises(InvalidInput):
        Target.parse(f"http://{host}/")


@given(st.text(st.sampled_from("htps:/@.[]?#%&=\\ax1-_\u00fc\u3002 \t\0"), max_size=30))
def test_a_url_is_parsed_or_refused_and_other_parsers_agree(tail: str) -> None:
    """E06: whatever passes has the same host and port for the standard library and for httpx."""
    try:
        target = Target.parse(f"http://{tail}")
    except InvalidInput:
        return
    assert target.host.isascii()
    for port, host in (
        (urlsplit(target.url).port, urlsplit(target.url).hostname),
        (httpx.URL(target.url).port, httpx.URL(target.url).raw_host.decode()),
    ):
        assert (port or 80) == target.port
        assert host == target.host


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    """E14: nothing else is raised."""
    for url in (text, f"http://{text}", f"http://a/{text}"):
        try:
            encoded = Target.parse(url).path
        except InvalidInput:
            continue
        assert encoded.isascii()
        assert encoded.isprintable()
