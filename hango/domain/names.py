"""Names, slugs and addresses: the one place that says which are allowed.

Rule: the API, the command line and the stores accept the same ones, because all of them ask here.
Each function returns the text as it is to be stored, or raises a ValueError that says what is wrong.
"""

from __future__ import annotations

import re

MAX_NAME = 200  # characters of a name, a title, a model's name
# https://www.rfc-editor.org/errata/eid1690: what fits into SMTP's path
MAX_EMAIL = 254  # characters
SLUG = "[a-z0-9][a-z0-9-]{0,62}"

# A mistyped address, not a wrong one: only sending mail there tells whether it exists.
_EMAIL = re.compile(r"[^@\s\ufffd]+@[^@\s\ufffd]+")


def check_title(text: str) -> str:
    """Check a text that may be empty."""
    if len(text) > MAX_NAME:
        raise ValueError(f"must be at most {MAX_NAME} characters")
    return text


def check_name(text: str) -> str:
    """Check the name of an agent, tenant or model."""
    if not text.strip():
        raise ValueError("must not be blank")
    return check_title(text)


def check_slug(text: str) -> str:
    """Check a name that is part of commands and URLs."""
    if re.fullmatch(SLUG, text) is None:
        raise ValueError(
            "must be 1 to 63 lower-case letters, digits and hyphens, and not begin with a hyphen"
        )
    return text


def check_email(text: str) -> str:
    """Check the address of a user."""
    if len(text) > MAX_EMAIL:
        raise ValueError(f"must be at most {MAX_EMAIL} characters")
    if _EMAIL.fullmatch(text) is None or not text.isprintable():
        raise ValueError("must be an address such as ada@example.com")
    return text
