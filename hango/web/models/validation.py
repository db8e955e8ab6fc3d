"""From a JSON value to a model; what pydantic finds wrong, in the API's own words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, RootModel, ValidationError
from pydantic_core import ErrorDetails

from hango.errors import InvalidInput

M = TypeVar("M", bound=BaseModel)

# By pydantic's name of the error; `{…}` are members of its context.
_TEXTS: Mapping[str, str] = {
    "missing": "is missing",
    "extra_forbidden": "is not known here",
    "string_type": "must be a string",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "model_type": "must be an object",
    "greater_than": "must be above {gt:.12g}",
    "greater_than_equal": "must be at least {ge:.12g}",
    "less_than_equal": "must be at most {le:.12g}",
    "enum": "must be {expected}",
    "literal_error": "must be {expected}",
    "union_tag_invalid": "must be one of {expected_tags}",
    "union_tag_not_found": "is missing",
}


def validate(value: object, model: type[M], context: object = None) -> M:
    """Return *value*, parsed JSON, as *model*; *context* is what its validators may look at.

    Raises:
        InvalidInput: it is not one; the field is the path of the first member that is wrong.
    """
    if not isinstance(value, dict):
        raise InvalidInput("The body must be an object")
    try:
        return model.model_validate(value, context=context)
    except ValidationError as error:
        raise _invalid(error.errors(include_url=False, include_input=False)[0], model) from None


def _invalid(error: ErrorDetails, model: type[BaseModel]) -> InvalidInput:
    context = error.get("ctx", {})
    # the first part of a path into a union is the name of the alternative, not of a member
    path = error["loc"][1:] if issubclass(model, RootModel) else error["loc"]
    match error["type"]:
        case "value_error":
            text, further = str(context["error"]), ""
        case "content":
            text, further = context["reason"], context["field"]
        case "union_tag_invalid" | "union_tag_not_found" as kind:
            text, further = _TEXTS[kind].format(**context), context["discriminator"].strip("'")
        case kind:
            text, further = _TEXTS.get(kind, error["msg"]).format(**context), ""
    return InvalidInput(text, field=".".join(map(str, [*path, further] if further else path)))
