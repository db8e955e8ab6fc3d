"""JSON bodies in and out, and ids.

Rule: a body is read once, whole and bounded, and cleaned by the codec before it is validated.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import NoReturn, TypeVar
from uuid import UUID

import trio
from pydantic import BaseModel
from quart import Response, request

from hango.codec import clean_json
from hango.errors import InvalidInput, NotFound
from hango.web.models.requests import EmptyBody
from hango.web.models.validation import validate
from hango.web.problem import MALFORMED, UNSUPPORTED_MEDIA, ApiError

# Bodies beyond this are parsed in a thread: a megabyte of JSON would hold up every other request,
# heartbeat and model stream of the process for tens of milliseconds.
_PARSE_INLINE = 32 * 1024  # bytes

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
# an answer is of one moment, and for one caller
_NO_STORE = {"Cache-Control": "no-store"}

M = TypeVar("M", bound=BaseModel)


def read_id(text: str) -> UUID:
    """Return the id spelled in *text*.

    Raises:
        NotFound: it is not a UUID in its usual spelling (capitals are fine), so nothing has it.
    """
    if _UUID.fullmatch(text) is None:
        raise NotFound
    return UUID(text)


def json_response(
    value: BaseModel, status: int = 200, headers: Mapping[str, str] = MappingProxyType({})
) -> Response:
    """Return *value* as a response of JSON."""
    return text_response(value.model_dump_json(), status, headers)


def text_response(
    text: str, status: int = 200, headers: Mapping[str, str] = MappingProxyType({})
) -> Response:
    """Return *text*, which is JSON, as a response."""
    return Response(text, status, {**headers, **_NO_STORE}, content_type="application/json")


def no_content() -> Response:
    """Return the response of a request that was done and has nothing to show."""
    response = Response("", HTTPStatus.NO_CONTENT, _NO_STORE)
    del response.headers["Content-Type"]
    return response


# --- bodies --------------------------------------------------------------------------------


async def read_body(model: type[M], context: object = None) -> M:
    """Read the body of this request as *model*; *context* is what its validators may look at.

    Raises:
        ApiError: it is not JSON by its headers (415), or by its content (400).
        InvalidInput: it is JSON, but not such an object; names the first wrong member.
    """
    _require_json()
    return await _parse(await _read_body(), model, context)


async def read_empty_body() -> None:
    """Require that this request has no body, or ``{}``; raises as `read_body`."""
    if body := await _read_body():
        _require_json()
        await _parse(body, EmptyBody, None)


def _require_json() -> None:
    if request.mimetype != "application/json":
        raise ApiError(UNSUPPORTED_MEDIA)
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise ApiError(UNSUPPORTED_MEDIA, "The body must not be compressed")


async def _read_body() -> bytes:
    return await request.get_data(cache=False, as_text=False, parse_form_data=False)


async def _parse(body: bytes, model: type[M], context: object) -> M:
    if len(body) > _PARSE_INLINE:
        return await trio.to_thread.run_sync(_validate, body, model, context)
    return _validate(body, model, context)


def _validate(body: bytes, model: type[M], context: object) -> M:
    return validate(parse_json(body), model, context)


def parse_json(body: bytes) -> object:
    """Parse *body* strictly and clean it.

    Stricter than `json.loads`: UTF-8 only, no NaN or Infinity, no number beyond a double's range or
    `int`'s digits, no repeated key (two readers would see two bodies), bounded nesting.

    Raises:
        ApiError: it is not such JSON; the detail says where, and quotes nothing but keys.
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
        raise ApiError(MALFORMED, "The body is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ApiError(MALFORMED, f"The body is not JSON: {error}") from None
    except RecursionError:
        raise ApiError(MALFORMED, "The body is nested too deeply") from None
    except InvalidInput as error:
        raise ApiError(MALFORMED, f"The body cannot be stored: {error}") from None
    except ValueError:  # int(): more digits than Python converts
        raise ApiError(MALFORMED, "The body holds a number that is too long") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ApiError(MALFORMED, f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ApiError(MALFORMED, "The body holds a number beyond the range of a double")
    return number


def _unique(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ApiError(MALFORMED, "The body holds an object with a repeated key")
    return members
