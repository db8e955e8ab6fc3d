"""JSON bodies in and out, and ids.

Rule: a body is read once, whole and bounded, and cleaned by the codec before anybody looks at it;
whatever nobody asked for in it is an error.  Only `hango.web` uses it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import NoReturn
from uuid import UUID

import attrs
import trio
from quart import Response, request

from hango.codec import clean_json
from hango.domain import JsonObject
from hango.errors import InvalidInput, NotFound
from hango.web.problem import MALFORMED, UNSUPPORTED_MEDIA, Refused

SHORT = 200  # characters of a name or a title
LONG = 10_000_000  # characters; the bound on the body bites first

# Bodies beyond this are parsed in a thread: a megabyte of JSON would hold up every other request,
# heartbeat and model stream of the process for tens of milliseconds.
_PARSE_INLINE = 32 * 1024  # bytes

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_REQUIRED = object()
# what is told is of this moment, and of this caller
_FRESH = {"Cache-Control": "no-store"}


def read_id(text: str) -> UUID:
    """Return the id spelled in *text*.

    Raises:
        NotFound: it is no id in its usual spelling (capitals are fine), so nothing has it.
    """
    if _UUID.fullmatch(text) is None:
        raise NotFound
    return UUID(text)


def answer(
    value: JsonObject, status: int = 200, headers: Mapping[str, str] = MappingProxyType({})
) -> Response:
    """Answer *value* as JSON, in its own key order."""
    # not the codec: what was stored is clean, and a page nests deeper than what it shows
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return Response(text, status, {**headers, **_FRESH}, content_type="application/json")


def nothing() -> Response:
    """Answer that it is done, and that there is no more to say."""
    response = Response("", HTTPStatus.NO_CONTENT, _FRESH)
    del response.headers["Content-Type"]
    return response


# --- bodies --------------------------------------------------------------------------------


async def read_fields() -> Fields:
    """Read the body of this request, which must be a JSON object.

    Raises:
        Refused: it is not JSON by its headers (415), or by its content (400).
        InvalidInput: it is JSON, but not an object.
    """
    _require_json()
    return await _parse(await _read_body())


async def read_nothing() -> None:
    """See to it that the body of this request says nothing: it is empty, or an object that is.

    Raises as `read_fields`.
    """
    if body := await _read_body():
        _require_json()
        (await _parse(body)).end()


def _require_json() -> None:
    if request.mimetype != "application/json":
        raise Refused(UNSUPPORTED_MEDIA)
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise Refused(UNSUPPORTED_MEDIA, "The body must not be compressed")


async def _read_body() -> bytes:
    return await request.get_data(cache=False, as_text=False, parse_form_data=False)


async def _parse(body: bytes) -> Fields:
    if len(body) > _PARSE_INLINE:
        return Fields.of(await trio.to_thread.run_sync(parse_json, body))
    return Fields.of(parse_json(body))


def parse_json(body: bytes) -> object:
    """Parse *body* strictly and clean it.

    Stricter than `json.loads`: UTF-8 only, no NaN or Infinity, no number beyond a double's range or
    `int`'s digits, no repeated key (two readers would see two bodies), bounded nesting.

    Raises:
        Refused: it is not such JSON; the detail says where, and quotes nothing but keys.
    """
    try:
        value = json.loads(
            body.decode(),
            parse_constant=_refuse_constant,
            parse_float=_finite,
            object_pairs_hook=_unique,
        )
        return clean_json(value)
    except UnicodeDecodeError:
        raise Refused(MALFORMED, "The body is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise Refused(MALFORMED, f"The body is not JSON: {error}") from None
    except RecursionError:
        raise Refused(MALFORMED, "The body is nested too deeply") from None
    except InvalidInput as error:
        raise Refused(MALFORMED, f"The body cannot be stored: {error}") from None
    except ValueError:  # int(): more digits than Python converts
        raise Refused(MALFORMED, "The body holds a number that is too long") from None


def _refuse_constant(name: str) -> NoReturn:
    raise Refused(MALFORMED, f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise Refused(MALFORMED, "The body holds a number beyond the range of a double")
    return number


def _unique(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise Refused(MALFORMED, "The body holds an object with a repeated key")
    return members


@attrs.define
class Fields:
    """The members of one JSON object, taken one by one; `end` refuses what is left.

    Every method that reads raises InvalidInput, naming the member, when it is missing (and has no
    default) or is not what is asked for.

    Attributes:
        members: not taken yet.
        path: of this object in the body, ending in a dot; empty for the body itself.
    """

    members: dict[str, object]
    path: str = ""

    @classmethod
    def of(cls, value: object, field: str = "") -> Fields:
        """Read *value* as an object; *field* is its path."""
        if not isinstance(value, dict):
            raise InvalidInput(
                "must be an object" if field else "The body must be an object", field=field
            )
        return cls(dict(value), f"{field}." if field else "")

    def end(self) -> None:
        """Refuse members that nobody took: a misspelled key is not quietly ignored."""
        for name in self.members:
            raise self._invalid(name, "is not known here")

    def take(self, name: str, default: object = _REQUIRED) -> object:
        """Return a member, whatever it is."""
        value = self.members.pop(name, default)
        if value is _REQUIRED:
            raise self._invalid(name, "is missing")
        return value

    def text(self, name: str, default: object = _REQUIRED, *, longest: int = SHORT) -> str:
        """Return a text of at most *longest* characters; it may be blank."""
        value = self.take(name, default)
        if not isinstance(value, str) or len(value) > longest:
            raise self._invalid(name, f"must be a string of at most {longest} characters")
        return value

    def word(self, name: str, default: object = _REQUIRED) -> str:
        """Return a short text that is not blank."""
        value = self.text(name, default)
        if not value.strip():
            raise self._invalid(name, "must not be blank")
        return value

    def known(self, name: str, what: Collection[str], default: object = _REQUIRED) -> str:
        """Return a text that is one of *what*."""
        value = self.take(name, default)
        if not isinstance(value, str) or value not in what:
            raise self._invalid(name, f"must be one of {_listed(what)}")
        return value

    def known_list(self, name: str, what: Collection[str], default: Sequence[str]) -> tuple[str, ...]:
        """Return a list of texts, each one of *what*, none twice; may be empty."""
        values = self.take(name, default)
        if not isinstance(values, list | tuple):
            raise self._invalid(name, "must be a list")
        for index, value in enumerate(values):
            if not isinstance(value, str) or value not in what:
                raise self._invalid(f"{name}.{index}", f"must be one of {_listed(what)}")
        if len(set(values)) < len(values):
            raise self._invalid(name, "holds a name twice")
        return tuple(values)

    def whole(self, name: str, highest: int) -> int | None:
        """Return a whole number from 1 to *highest*, or None where it is missing or null."""
        value = self.take(name, None)
        if value is None or (type(value) is int and 1 <= value <= highest):
            return value
        raise self._invalid(name, f"must be a whole number from 1 to {highest}, or null")

    def seconds(self, name: str, highest: int) -> float | None:
        """Return a number above 0 and up to *highest*, or None where it is missing or null."""
        value = self.take(name, None)
        if value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= highest:
            return float(value)
        raise self._invalid(name, f"must be seconds, above 0 and up to {highest}, or null")

    def _invalid(self, name: str, message: str) -> InvalidInput:
        return InvalidInput(message, field=f"{self.path}{name}")


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) if names else "those registered (there are none)"
