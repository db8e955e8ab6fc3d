"""Ids and JSON objects."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TypeAlias
from uuid import UUID

import uuid_utils.compat

JsonObject: TypeAlias = Mapping[str, object]
"""A JSON object: null, booleans, numbers, texts, lists and objects by text keys."""


_LAST_SECOND = datetime.max.replace(microsecond=0, tzinfo=UTC).timestamp()


def new_id() -> UUID:
    """Make an id: a UUID of version 7, so ids sort by the time they were made (RFC 9562 §5.7)."""
    return uuid_utils.compat.uuid7()


def time_of_id(id_: UUID) -> datetime:
    """Return when an id of `new_id` was made, by the clock of the process that made it (UTC).

    Any other id gives some time, too: at most the last one that a `datetime` can hold.
    """
    return datetime.fromtimestamp(min((id_.int >> 80) / 1000, _LAST_SECOND), UTC)
