"""What looks like a secret, taken out of text that is about to be read by others.

One rule: rather hide too much.  A net under callers who should not have put a secret there at all.
"""

from __future__ import annotations

import re

HIDDEN = "[redacted]"
_SECRETS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END|\Z)", re.DOTALL), HIDDEN),
    # user:password@, also when the password holds an @
    (re.compile(r"://[^\s/@:]{0,128}:[^\s@]{1,256}@(?:[^\s@/]{1,128}@)?"), f"://{HIDDEN}@"),
    # headers, as text, in a mapping ('name': 'value') or in a list of pairs ('name', 'value')
    (
        re.compile(
            r"""(?ix) \b ((?:proxy-)?authorization | (?:set-)?cookie)
            (["']\s*[:=,]\s* | \s*[:=]\s*) [^\r\n]+"""
        ),
        rf"\1\2{HIDDEN}",
    ),
    (
        re.compile(
            r"""(?ix) (api[-_ ]?key | access[-_]?key | token | secret | passw(?:or)?d | passphrase)
            (["']\s*[:=,]\s*b?["']? | \s*[:=]\s*["']?) [^\s"'&,;)}\]]+"""
        ),
        rf"\1\2{HIDDEN}",
    ),
    (re.compile(r"(?i)\b(bearer\s+)[a-z0-9._~+/=-]{8,}"), rf"\1{HIDDEN}"),
    (re.compile(r"(?i)\b(basic\s+)[a-z0-9+/=]{16,}"), rf"\1{HIDDEN}"),
    (
        re.compile(
            r"\b(?:hgo_[\w-]+|sk-[\w-]{6,}|gh[opsu]_\w{16,}|github_pat_\w{16,}|xox[a-z]-[\w-]{8,}"
            r"|A(?:KI|SI)A[0-9A-Z]{12,}|AIza[\w-]{20,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
        ),
        HIDDEN,
    ),
)


def redact(text: str) -> str:
    """Replace what looks like a credential: keys, tokens, authorization headers, passwords in URLs."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text
