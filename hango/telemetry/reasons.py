"""Why a run failed, without content: for spans, logs and labels.

Rule: a sentence of hango's is repeated, of a provider's only its code, and of a model's, a tool's or a
verifier's nothing.
"""

from __future__ import annotations

import re

from hango.domain import ErrorCode, RunError

# their messages are hango's own, from settings and registered names
_OWN_WORDS = frozenset(
    {
        ErrorCode.DEADLINE_EXCEEDED,
        ErrorCode.ITERATION_CAP,
        ErrorCode.CREATOR_INACTIVE,
        ErrorCode.CREATOR_FORBIDDEN,
        ErrorCode.AGENT_MISSING,
        ErrorCode.CRASH_LOOP,
        ErrorCode.INTERNAL,
    }
)
_MAX = 200  # characters

# how the message of a provider's error begins: `hango.providers.failures`, or its code
_ANSWERED = re.compile(
    r"[\w-]{1,64} (?:answered (?P<status>\d{3})|failed)(?: \((?P<code>[\w.-]{1,64})\))?"
)
_CODE = re.compile(r"(?P<code>[a-z][\w.-]{0,63}): ")


def reason(error: RunError) -> str:
    """Return a sentence for people, bounded; empty if there is none without content."""
    if error.code in _OWN_WORDS:
        return error.message[:_MAX]
    if found := _ANSWERED.match(error.message):
        return found[0]
    return _code(error.message)


def provider_code(error: RunError) -> str:
    """Return the provider's own code for its error, else the run's."""
    if found := _ANSWERED.match(error.message):
        return found["code"] or found["status"] or error.code
    return _code(error.message) or error.code


def _code(message: str) -> str:
    found = _CODE.match(message)
    return found["code"] if found else ""
