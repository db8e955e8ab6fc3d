"""The errors of hango, as one tree.

    HangoError                     never raised directly
    ├── ConfigError                settings are invalid; has all mistakes at once
    ├── RegistrationError          a tool or plug-in cannot be used; names its module
    ├── InvalidInput               a client's input is invalid; names the field
    ├── Forbidden                  a member called for administration
    ├── SessionQueueFull           the session has the maximum of live runs
    ├── TenantQueueFull            the tenant has the maximum of live runs
    ├── KeyReused                  an idempotency key was reused with another request
    ├── LastOwner                  the tenant would have no active owner
    ├── SessionBusy                the session has a live run, so no message can be added
    ├── StoreError
    │   ├── NotFound               the object does not exist, or is not visible to this user
    │   ├── AlreadyExists          a unique name is taken
    │   ├── UniqueViolation        a row with that key is there already
    │   ├── StateConflict          another process changed the state first; nothing was changed
    │   ├── StoreUnavailable       the database is away, or its answer was lost; the work may be done
    │   │   ├── NotSent            no connection could be had; nothing was done
    │   │   └── NotWritable        the database can be reached, and takes no writes
    │   ├── MigrationError         the schema does not fit this version of hango
    │   └── EmbeddedPostgresError  the embedded server cannot be started
    ├── ProviderError              a model call failed; says whether to try again
    │   ├── ProviderStreamBroken   the stream ended before its end
    │   ├── UnsupportedStop        a stop reason that hango cannot continue from
    │   └── ContextExceeded        the conversation is longer than the model's window
    ├── LoopBusy                   the loop is already running
    ├── VerifierError              a completion gate failed to judge
    └── ActorError
        ├── InboxFull              the inbox of an actor is full
        └── ActorStopped           the actor has ended

Messages say what to do.  ``hango.web.problem`` maps the classes to HTTP.
"""

from __future__ import annotations


class HangoError(Exception):
    """Base of all errors of hango; never raised directly."""


class ConfigError(HangoError):
    """Settings are invalid.

    Attributes:
        problems: a sentence for each mistake, in the order of the settings.
    """

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class RegistrationError(HangoError):
    """A tool, provider or plug-in cannot be used; the message names its module."""


class InvalidInput(HangoError):
    """A client's input is invalid.

    Attributes:
        field: path of the offending field, such as ``input.0.text``; empty for the whole body.
    """

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class Forbidden(HangoError):
    """The user's role may not do this."""


class SessionQueueFull(HangoError):
    """The session already has the maximum of queued and running runs."""


class TenantQueueFull(HangoError):
    """The tenant already has the maximum of queued and running runs, in all its sessions together."""


class KeyReused(HangoError):
    """The idempotency key was used before, with another request."""


class LastOwner(HangoError):
    """The change would leave the tenant without an active owner."""


class SessionBusy(HangoError):
    """The session has a queued or running run, so clients cannot add messages."""


class StoreError(HangoError):
    """Base of the errors of the store."""


class NotFound(StoreError):
    """The object does not exist, or this user may not see it; deliberately the same."""


class AlreadyExists(StoreError):
    """A unique name is taken."""


class StateConflict(StoreError):
    """Another process changed the state first; nothing was changed."""


class StoreUnavailable(StoreError):
    """The database cannot be reached, or its answer was lost; the work may have been done."""


class NotSent(StoreUnavailable):
    """No connection could be had: nothing was sent, so nothing was done; the message says why."""


class NotWritable(StoreUnavailable):
    """The database can be reached and takes no writes; the message says why."""


class UniqueViolation(StoreError):
    """A row with that key is there already; nothing was changed.

    Attributes:
        constraint: the name of the unique constraint or index.
    """

    def __init__(self, constraint: str) -> None:
        super().__init__(f"duplicate key ({constraint})")
        self.constraint = constraint


class MigrationError(StoreError):
    """This version cannot use the schema in the database; the message says why."""


class EmbeddedPostgresError(StoreError):
    """The embedded server cannot be started; the message says what to install or change."""


class ProviderError(HangoError):
    """A call to a model provider failed.

    Attributes:
        code: the provider's name of the error, or the HTTP status as text; never empty.
        retryable: whether the same request may succeed later (408, 409, 429, 5xx, no connection).
        retry_after: seconds that the provider asked to wait, bounded; None if it did not.
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
    """The stream broke or went silent before its end; the partial answer is kept."""


class UnsupportedStop(ProviderError):
    """A stop reason that hango cannot continue from, such as ``pause_turn``; the message names it."""


class ContextExceeded(ProviderError):
    """The conversation does not fit the model's context window."""


class LoopBusy(HangoError):
    """The loop is already running; nothing was started."""


class VerifierError(HangoError):
    """A verifier raised or returned an invalid value; the message says which."""


class ActorError(HangoError):
    """Base of the errors of an actor's address."""


class InboxFull(ActorError):
    """The inbox is full; the message was not taken."""


class ActorStopped(ActorError):
    """The actor has ended or is ending; the message was not taken."""
