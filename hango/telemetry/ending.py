"""How an execution ended, as its spans and metrics say it."""

from __future__ import annotations

from typing import ClassVar

import attrs

from hango.domain import ErrorCode, RunOutcome, RunState
from hango.telemetry import names
from hango.telemetry.attributes import Attributes
from hango.telemetry.reasons import provider_code


@attrs.frozen
class Ending:
    """How what was still open ended.

    Attributes:
        kind: an error code, or ``cancelled``, ``released`` or ``lease_lost``; empty for no reason.
        is_error: whether it is an error, rather than somebody's wish.
        provider: the provider's code, if the model call was what failed.
    """

    kind: str = ""
    is_error: bool = False
    provider: str = ""

    LEASE_LOST: ClassVar[str] = "lease_lost"

    @classmethod
    def of(cls, state: RunState | None, outcome: RunOutcome | None) -> Ending:
        """Return how an execution ended that put its run into *state*."""
        if state is None:
            return cls(cls.LEASE_LOST, is_error=True)
        if outcome is None or state is not outcome.state:
            return cls("cancelled" if state is RunState.CANCELLED else "released")
        if outcome.error is None:
            return cls()
        code = outcome.error.code
        of_model = code in _OF_THE_MODEL
        return cls(code.value, is_error=True, provider=provider_code(outcome.error) if of_model else "")

    @property
    def described(self) -> Attributes:
        """The attributes of a span that it ended."""
        if self.is_error:
            return {names.ERROR_TYPE: self.kind}
        if not self.kind:
            return {}
        level = {"langfuse.observation.level": "WARNING"}
        return {
            **level,
            "langfuse.observation.status_message": self.kind,
            "hango.interrupted": self.kind,
        }


_OF_THE_MODEL = frozenset(
    {
        ErrorCode.PROVIDER_ERROR,
        ErrorCode.PROVIDER_STREAM_BROKEN,
        ErrorCode.CONTEXT_EXCEEDED,
        ErrorCode.UNSUPPORTED_STOP,
    }
)


COMPLETED = Ending()
