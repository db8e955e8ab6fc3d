"""Names, slugs and addresses: what is stored of them, and which are refused."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hango.domain.names import MAX_EMAIL, MAX_NAME, SLUG, check_email, check_name, check_slug, slug_of

# by what was given: what is stored
NAMES = {
    "Coach": "Coach",
    " The Coach ": " The Coach ",
    "a\u0308": "\u00e4",
    "\N{WOMAN}\u200d\N{PERSONAL COMPUTER}\ufe0f": "\N{WOMAN}\u200d\N{PERSONAL COMPUTER}\ufe0f",
    "\u0645\u06cc\u200c\u062e": "\u0645\u06cc\u200c\u062e",
    "n" * MAX_NAME: "n" * MAX_NAME,
}
NO_NAMES = [
    *("", " ", "\n", "a\nb", "a\x00b", "a\x1b[31mb", "a\x9bb"),
    *("a\u200bb", "a\u202eb", "a\u2066b", "\ufeffa", "a\u00adb", "a\u2028b", "\ud800", "\U000e0041"),
    *("\u200d", "a\u200d", "\u200ca", "\u3164", "a\u2800", "n" * (MAX_NAME + 1)),
]
ADDRESSES = {
    "a@b": "a@b",
    "Ada.Lovelace+x@ACME.example": "Ada.Lovelace+x@ACME.example",
    "a\u0308@b.example": "\u00e4@b.example",
    "ada@b\u00fccher.example": "ada@xn--bcher-kva.example",
    "ada@bu\u0308cher.example": "ada@xn--bcher-kva.example",
    "ada@XN--BCHER-KVA.example": "ada@xn--bcher-kva.example",
    "ada@\uff45xample.com": "ada@example.com",
}
NO_ADDRESSES = [
    *("", "@", "a@", "@b", "a", "a@b@c", "a b@c", "a@b c", "a@b\n", "a@b;drop", "a@[127.0.0.1]"),
    *(
        "a@b.",
        "a@.b",
        "a@b..c",
        "a@-b",
        "a@b-",
        "a@b_c",
        "a@xn--zzzzzz.example",
        "a@\u2603\ufe0f\u200b.test",
    ),
    *(
        "a@b\u200bc",
        "a\u202e@b",
        "a\u3164@b",
        "a\ufe0f@b",
        "a\ufffd@b",
        "a\x00@b",
        "\ud800@b",
        "a@b\u00adc",
    ),
    *("a@" + "b" * MAX_EMAIL, "a@" + "\u00fc" * 240),
]


@pytest.mark.parametrize("text", NAMES, ids=ascii)
def test_a_name_is_stored_in_one_form(text: str) -> None:
    """Names are normalized, so that what looks the same is the same (N27)."""
    assert check_name(text) == NAMES[text]


@pytest.mark.parametrize("text", NO_NAMES, ids=ascii)
def test_a_name_that_cannot_be_seen_is_refused(text: str) -> None:
    """Blank, long, and whatever hides or reorders what is read (N27)."""
    with pytest.raises(ValueError, match="must"):
        check_name(text)


@pytest.mark.parametrize("text", ADDRESSES, ids=ascii)
def test_an_address_is_stored_in_one_form(text: str) -> None:
    """One person has one account, however the address is written (N27)."""
    assert check_email(text) == ADDRESSES[text]


@pytest.mark.parametrize("text", NO_ADDRESSES, ids=ascii)
def test_what_is_no_address_is_refused(text: str) -> None:
    """A mistyped address, or one that hides characters, is refused (N27)."""
    with pytest.raises(ValueError, match="must"):
        check_email(text)


@given(st.text())
def test_what_is_stored_is_stored_again_as_it_is(text: str) -> None:
    """Whatever is given, it is refused, or stored in a form that is stored unchanged."""
    for check, most in ((check_name, MAX_NAME), (check_email, MAX_EMAIL)):
        try:
            stored = check(text)
        except ValueError:
            continue
        assert check(stored) == stored
        assert len(stored) <= most


@given(st.text())
def test_every_name_has_a_slug(text: str) -> None:
    """A slug can be made of any name; a slug is its own."""
    slug = slug_of(text)
    assert re.fullmatch(SLUG, slug)
    assert check_slug(slug) == slug_of(slug) == slug
