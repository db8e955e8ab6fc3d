"""Names, slugs and addresses: which are allowed, and how they are stored.

Rule: the API and the command line both ask here, so that neither stores what the other refuses.  Each
``check_…`` returns the text to store, or raises a ValueError that says what is wrong.
"""

from __future__ import annotations

import re
import unicodedata

import idna

MAX_NAME = 200  # characters of a name, a title, a model's name
# https://www.rfc-editor.org/errata/eid1690: what fits into SMTP's path
MAX_EMAIL = 254  # characters
# Characters of a tool's name or a call's id: what the narrowest of the model APIs takes
# (https://platform.openai.com/docs/api-reference/chat/create)
MAX_API_NAME = 64
API_NAME = "[a-zA-Z0-9_-]{1,64}"
SLUG = "[a-z0-9][a-z0-9-]{0,62}"

# Controls, formats, line separators, lone surrogates: they cannot be seen, or reorder what is around
# them.  Two names that look the same would be two, and one could pose as another.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Letters and marks that are drawn as nothing: fillers of Hangul and Khmer, the empty Braille cell.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
# The two joiners are formats, too, but Persian and Indic words and many emoji are spelled with them.
_JOINERS = "\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}"
# They choose how a character is drawn: fine in a name (emoji have them), not in an address.
_VARIATION = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
# Whether an address exists is only found out by sending mail there; this refuses mistyped ones.
_LOCAL_PART = re.compile(r"[^@\s\ufffd]+")
_LABEL = re.compile("[A-Za-z0-9-]+")


def is_api_name(text: str) -> bool:
    """Return whether every model API takes *text* as the name of a tool or the id of a call."""
    return re.fullmatch(API_NAME, text) is not None


def api_characters(text: str) -> str:
    """Return *text* with "_" for each character that is not allowed in an `API_NAME`."""
    return re.sub("[^a-zA-Z0-9_-]", "_", text)


def api_name(text: str) -> str:
    """Return *text* as an `API_NAME`: models make up names that no API takes back."""
    return api_characters(text)[:MAX_API_NAME] or "unknown"


def check_title(text: str) -> str:
    """Check a text for people that may be empty."""
    if len(text) > MAX_NAME:
        raise ValueError(f"must be at most {MAX_NAME} characters")
    return text


def check_name(text: str) -> str:
    """Check the name of an agent, tenant or model; normalized to NFC."""
    text = unicodedata.normalize("NFC", check_title(text))
    if not text.strip():
        raise ValueError("must not be blank")
    if any(_unseen(it) and it not in _JOINERS for it in text):
        raise ValueError("must not contain control characters or invisible characters")
    if text[0] in _JOINERS or text[-1] in _JOINERS:
        raise ValueError("must not begin or end with an invisible character")
    return check_title(text)


def check_slug(text: str) -> str:
    """Check a name that is part of commands and URLs."""
    if re.fullmatch(SLUG, text) is None:
        raise ValueError(
            "must be 1 to 63 lower-case letters, digits and hyphens, and not begin with a hyphen"
        )
    return text


def slug_of(name: str) -> str:
    """Return a slug for *name*: itself if it is one, else one that resembles it."""
    if re.fullmatch(SLUG, name):
        return name
    return re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")[:63] or "unnamed"


def check_email(text: str) -> str:
    """Check the address of a user; normalized to NFC, an international domain to its ASCII form."""
    if len(text) > MAX_EMAIL:
        raise ValueError(f"must be at most {MAX_EMAIL} characters")
    text = unicodedata.normalize("NFC", text)
    if not text.isprintable() or any(map(_unseen, text)) or _VARIATION.search(text):
        raise ValueError("must not contain blanks, control characters or invisible characters")
    local, _, domain = text.partition("@")
    domain = _ascii_domain(domain)
    if _LOCAL_PART.fullmatch(local) is None or not _is_domain(domain):
        raise ValueError("must be an address such as ada@example.com")
    address = f"{local}@{domain}"
    if len(address) > MAX_EMAIL:
        raise ValueError(f"must be at most {MAX_EMAIL} characters")
    return address


def _unseen(character: str) -> bool:
    return unicodedata.category(character) in _UNSEEN or character in _BLANK


def _is_domain(text: str) -> bool:
    labels = text.split(".")
    return all(_LABEL.fullmatch(label) and label.strip("-") == label for label in labels)


def _ascii_domain(domain: str) -> str:
    """Return a domain in its ASCII form (RFC 5891); empty if it has none."""
    if domain.isascii() and "xn--" not in domain.lower():
        return domain
    try:
        return idna.encode(domain, uts46=True).decode()
    except (idna.IDNAError, UnicodeError):
        return ""
