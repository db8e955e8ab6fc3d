"""Every error hango raises on purpose, as one tree.

    HangoError                     never raised itself
    ├── ConfigError                settings: every mistake at once
    ├── RegistrationError          a tool or plug-in that cannot be used; names its module
    ├── InvalidInput               what a client sent cannot be accepted; names the field
    ├── Forbidden                  administration asked for by a member
    ├── SessionQueueFull           the session has as many live runs as it may
    ├── KeyReused                  an idempotency key came again, with another request
    ├── LastOwner                  the tenant would be left without an active owner
    ├── SessionBusy                the session has a live run, so nobody may add messages
    ├── StoreError
    │   ├── NotFound               no such thing, or not visible to this user: the same answer
    │   ├── AlreadyExists          a unique name is taken
    │   ├── StateConflict          someone else was first; nothing was changed
    │   ├── StoreUnavailable       no database, or its answer was lost: it may have been done
    │   ├── MigrationError         the schema is not what this hango expects
    │   └── EmbeddedPostgresError  the embedded server cannot be started; says what to do
    ├── ProviderError              a model call failed; says whether to try again
    │   ├── ProviderStreamBroken   the stream ended before its end
    │   ├── UnsupportedStop        a stop reason that cannot be continued from
    │   └── ContextExceeded        the conversation is longer than the model's window
    ├── LoopBusy                   a loop runs one thing at a time
    ├── VerifierError              a completion gate failed to judge
    └── ActorError
        ├── InboxFull              the actor is behind; try later
        └── ActorStopped           the actor has ended

Classes differ where a caller acts differently.  ``hango.web.problem`` maps them to HTTP in one table.
Imports nothing; anyone may import it.
"""

from __future__ import annotations


class HangoError(Exception):
    """Base of the tree; never raised itself."""


class ConfigError(HangoError):
    """Settings that cannot be used.

    Attributes:
        problems: one sentence each, every mistake found, in the order of the settings.
    """

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class RegistrationError(HangoError):
    """A tool, provider or plug-in that cannot be used; the message names its module."""


class InvalidInput(HangoError):
    """What a client sent cannot be accepted.

    Attributes:
        field: path of the offending field, such as ``input.0.text``; empty for the whole body.
    """

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class Forbidden(HangoError):
    """An administrative call by someone who is not an administrator."""


class SessionQueueFull(HangoError):
    """The session already has as many queued and running runs as it may have."""


class KeyReused(HangoError):
    """An idempotency key was used before, for another request."""


class LastOwner(HangoError):
    """The change would leave the tenant without an active owner."""


class SessionBusy(HangoError):
    """The session has a queued or running run, so no message can be added from outside."""


class StoreError(HangoError):
    """Base of what the store raises."""


class NotFound(StoreError):
    """No such thing, or one this user may not see: deliberately the same."""


class AlreadyExists(StoreError):
    """A name that must be unique is taken."""


class StateConflict(StoreError):
    """Someone else was first (the fence did not hold); nothing was changed."""


class StoreUnavailable(StoreError):
    """The database cannot be reached, or its answer was lost: the work may have been done."""


class MigrationError(StoreError):
    """The schema in the database is not one this version may use; the message says why."""


class EmbeddedPostgresError(StoreError):
    """The embedded server cannot be started; the message says what to install or change."""


class ProviderError(HangoError):
    """A call to a model provider failed.

    Attributes:
        code: the provider's own short error name, or an HTTP status as text; never empty.
        retryable: whether the same request may succeed later (408, 409, 429, 5xx, no connection).
        retry_after: seconds the provider asked to wait, already bounded; None when it did not say.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "provider_error",
        retryable: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retryable = retryable
        self.retry_after = retry_after


class ProviderStreamBroken(ProviderError):
    """The stream ended or went silent before its end; what arrived is kept as partial."""


class UnsupportedStop(ProviderError):
    """A stop reason hango cannot continue from, such as ``pause_turn``; the message names it."""


class ContextExceeded(ProviderError):
    """The conversation does not fit the model's context window."""


class LoopBusy(HangoError):
    """The loop is running already; nothing was started."""


class VerifierError(HangoError):
    """The verifier of a completion gate raised, or answered nonsense; the message says what."""


class ActorError(HangoError):
    """Base of what an actor's address raises."""


class InboxFull(ActorError):
    """The inbox is at its bound; the message was not taken."""


class ActorStopped(ActorError):
    """The actor has ended, or is finishing its queue; the message was not taken."""
