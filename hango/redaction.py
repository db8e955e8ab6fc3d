"""Redaction: what looks like a secret is taken out of text before others read it.

Rule: rather too much is hidden than too little.  Time is linear in the text, which may be hostile: no
pattern backtracks (repetitions are possessive, groups atomic), nor begins again in what it has read.
"""

from __future__ import annotations

import re
import string
from bisect import bisect_left
from collections.abc import Sequence

HIDDEN = "[redacted]"

# What is kept of a match comes first, in a group
_SECRETS = (
    # user:password@, also when the password holds an @
    re.compile(r"(://)[^\s/@:]{0,128}+:[^\s@]{1,256}+(?=@)(?>@[^\s@/]{1,128}+(?=@))?+"),
    # headers, as text, in a mapping ('name': 'value') or in a list of pairs ('name', 'value')
    re.compile(
        r"""(?ix) ( \b (?> (?:proxy-)?authorization | (?:set-)?cookie )
        (?> ["']\s*+[:=,] | \s*+[:=] ) \s*+ ) [^\r\n]++"""
    ),
    re.compile(r"(?i)(\bbearer\s++)[a-z0-9._~+/=-]{8,}+"),
    re.compile(r"(?i)(\bbasic\s++)[a-z0-9+/=]{16,}+"),
    re.compile(
        r"""(?ix) ( (?> api[-_ ]?key | access[-_]?key | token | secret | passw(?:or)?d | passphrase )
        (?> ["']\s*+[:=,] | \s*+[:=] ) \s*+ (?> b?["'] )?+ ) [^\s"'&,;)}\]]++"""
    ),
)
_BEGIN, _KIND_END, _END = "-----BEGIN ", "PRIVATE KEY-----", "-----END"
_KIND = frozenset(string.ascii_uppercase + " ")
_MAX_KIND = 64  # characters that name the kind of a private key
# Words in which tokens are looked for; how tokens begin, and how many characters must follow at least
_WORD = re.compile(r"[\w.-]++")
_HEAD = re.compile(
    r"\b(?:(?P<one>hgo_)|(?P<six>sk-)|(?P<eight>xox[a-z]-)|(?P<jwt>eyJ)|(?P<twelve>A(?:KI|SI)A)"
    r"|(?P<sixteen>gh[opsu]_|github_pat_)|(?P<twenty>AIza))"
)
_LEAST = {"one": 1, "six": 6, "eight": 8, "jwt": 8, "twelve": 12, "sixteen": 16, "twenty": 20}


def redact(text: str) -> str:
    """Replace what looks like a credential: keys, tokens, authorization headers, passwords in URLs."""
    text = _hide_private_keys(text)
    for pattern in _SECRETS:
        text = pattern.sub(rf"\1{HIDDEN}", text)
    return _WORD.sub(_hide_tokens, text)


def _hide_private_keys(text: str) -> str:
    kept, done, place = [], 0, 0
    while (begin := text.find(_BEGIN, place)) >= 0:
        place = begin + len(_BEGIN)
        kind_end = text.find(_KIND_END, place, place + _MAX_KIND + len(_KIND_END))
        if kind_end < 0 or not _KIND.issuperset(text[place:kind_end]):
            continue
        end = text.find(_END, kind_end + len(_KIND_END))
        place = len(text) if end < 0 else end + len(_END)
        kept += [text[done:begin], HIDDEN]
        done = place
    return "".join([*kept, text[done:]])


def _hide_tokens(found: re.Match[str]) -> str:
    word = found[0]
    head = _HEAD.search(word)
    if head is None:
        return word
    dots = [place for place, character in enumerate(word) if character == "."]
    kept, done = [], 0
    while head is not None:
        end = _end_of_token(word, head, dots)
        if end:
            kept += [word[done : head.start()], HIDDEN]
            done = end
        head = _HEAD.search(word, end or head.end())
    return "".join([*kept, word[done:]])


def _end_of_token(word: str, head: re.Match[str], dots: Sequence[int]) -> int:
    """Return where the token that begins with *head* ends; 0 if there is none."""
    ends = (*dots[(first := bisect_left(dots, head.end())) : first + 3], len(word))
    least = _LEAST[str(head.lastgroup)]
    if ends[0] - head.end() < least:
        return 0
    if head.lastgroup != "jwt":
        return ends[0]
    # a JSON Web Token has three parts
    return ends[2] if len(ends) > 2 and ends[1] - ends[0] > least else 0  # noqa: PLR2004 - see above
