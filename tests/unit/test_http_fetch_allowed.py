"""Where http_fetch may go: the allow-list, and redirects held to it."""

from __future__ import annotations

import pytest

from hango.errors import InvalidInput
from hango.tools import AllowedHosts
from hango.tools.fetch import Target
from hango.tools.fetch.targets import MAX_URL

pytestmark = pytest.mark.rule(22)


# --- the allow-list -------------------------------------------------------------------------


def allows(entry: str, url: str) -> bool:
    """Tell whether a list of one *entry* lets *url* pass."""
    try:
        AllowedHosts.parse([entry]).admit(Target.parse(url))
    except InvalidInput:
        return False
    return True


@pytest.mark.parametrize(
    ("entry", "url"),
    [
        ("example.com", "http://example.com/"),
        ("example.com", "https://EXAMPLE.com./"),
        ("Example.COM.", "http://example.com:443/"),
        ("*.example.com", "http://a.example.com/"),
        ("*.example.com", "http://a.b.example.com/"),
        ("example.com:8443", "https://example.com:8443/"),
        ("*.example.com:8443", "http://a.example.com:8443/"),
        ("bücher.test", "http://xn--bcher-kva.test/"),
        ("xn--bcher-kva.test", "http://bücher.test/"),
        ("8.8.8.8", "http://8.8.8.8/"),
        ("[2001:4860:4860::8888]:8080", "http://[2001:4860:4860:0::8888]:8080/"),
        (" example.com ", "http://example.com/"),
    ],
)
def test_what_is_listed_passes(entry: str, url: str) -> None:
    """E07: by the canonical name and port."""
    assert allows(entry, url)


@pytest.mark.parametrize(
    ("entry", "url"),
    [
        ("example.com", "http://notexample.com/"),
        ("example.com", "http://example.com.evil.test/"),
        ("example.com", "http://a.example.com/"),
        ("example.com", "http://example.co/"),
        ("example.com", "http://example.com:8080/"),
        ("example.com", "http://example.com:22/"),
        ("example.com:8443", "https://example.com/"),
        ("example.com:80", "https://example.com:443/"),
        ("*.example.com", "http://example.com/"),
        ("*.example.com", "http://aexample.com/"),
        ("*.example.com", "http://a.example.com.evil.test/"),
        ("*.example.com", "http://a.example.com:8443/"),
        ("bücher.test", "http://bucher.test/"),
        ("8.8.8.8", "http://8.8.4.4/"),
        ("*.8", "http://8.8.8.8/"),
    ],
)
def test_what_is_not_listed_does_not(entry: str, url: str) -> None:
    """E07, E14: no prefix, suffix, substring or other port."""
    assert not allows(entry, url)


def test_an_empty_list_allows_nothing() -> None:
    """E07: also one of blanks."""
    for entries in ([], ["", "  "]):
        with pytest.raises(InvalidInput):
            AllowedHosts.parse(entries).admit(Target.parse("http://example.com/"))


@pytest.mark.parametrize(
    "entry",
    [
        "*",
        "*.",
        "**.example.com",
        "*example.com",
        "a.*.com",
        "*.8.8.8.8",
        "http://example.com",
        "example.com/path",
        "example.com:",
        "example.com:0",
        "example.com:http",
        "user@example.com",
        "127.1",
        "::1",
        "10.0.0.0/8",
        "exa mple.com",
        "a,b",
    ],
)
def test_an_entry_that_is_none_is_named(entry: str) -> None:
    """E07: a list that says something else than it seems to is an error at start."""
    with pytest.raises(InvalidInput, match="not a host") as raised:
        AllowedHosts.parse(["example.com", entry])
    assert repr(entry) in str(raised.value)


def test_all_bad_entries_are_told_at_once() -> None:
    """So that a list is mended in one go."""
    with pytest.raises(InvalidInput) as raised:
        AllowedHosts.parse(["*", "example.com", "a b"])
    assert "'*'" in str(raised.value)
    assert "'a b'" in str(raised.value)
    assert "'example.com'" not in str(raised.value)


# --- redirects ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/b", "http://good.test:8080/b"),
        ("b?x", "http://good.test:8080/a/b?x"),
        ("?x", "http://good.test:8080/a/?x"),
        ("../c", "http://good.test:8080/c"),
        ("//other.test/", "http://other.test/"),
        ("https://bücher.test/ü", "https://xn--bcher-kva.test/%C3%BC"),
    ],
)
def test_a_redirect_is_read_from_where_it_came(location: str, url: str) -> None:
    """E09: relative ones too, and names in any script."""
    assert Target.parse("http://good.test:8080/a/").join(location).url == url


@pytest.mark.parametrize(
    "location",
    [
        "file:///etc/passwd",
        "http://user@good.test/",
        "//127.1/",
        "http://good.test\\@evil.test/",
        "/a b",
        "http://[::1",
        "\thttp://good.test/",
        "x" * (MAX_URL + 1),
    ],
)
def test_a_redirect_is_as_strict_as_a_url(location: str) -> None:
    """E06, E09: what may not be asked for may not be redirected to."""
    with pytest.raises(InvalidInput):
        Target.parse("http://good.test/").join(location)


def test_a_redirect_never_leaves_https() -> None:
    """E09: what was asked for under encryption is not sent without."""
    with pytest.raises(InvalidInput, match="https to http"):
        Target.parse("https://good.test/").join("http://good.test/")
