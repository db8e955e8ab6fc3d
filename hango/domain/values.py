"""Ids and JSON: what every other part of the vocabulary is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias
from uuid import UUID

import uuid_utils.compat

JsonObject: TypeAlias = Mapping[str, object]
"""A JSON object: null, booleans, numbers, texts, lists and objects by text keys."""


def new_id() -> UUID:
    """Make an id: a UUID of version 7, so ids sort by the time they were made (RFC 9562 §5.7)."""
    return uuid_utils.compat.uuid7()
