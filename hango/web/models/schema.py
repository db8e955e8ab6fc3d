"""JSON Schemas of the models, as the OpenAPI document has them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import cast

from pydantic import BaseModel
from pydantic.json_schema import (
    GenerateJsonSchema,
    JsonSchemaMode,
    JsonSchemaValue,
    models_json_schema,
)
from pydantic_core import core_schema

from hango.domain import JsonObject

_REF = "#/components/schemas/{model}"
# What keeps Python classes apart (`RunJson` is not `Run`) is not part of the API's names.
_SUFFIX = re.compile(r"(?:Json|Body)\b")


class _Generator(GenerateJsonSchema):
    """Pydantic's generator, without titles that repeat names and defaults that say nothing."""

    def normalize_name(self, name: str) -> str:
        return super().normalize_name(_SUFFIX.sub("", name))

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002  # the base's signature
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        described = super().model_schema(schema)
        del described["title"]
        return described

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        if schema.get("default") in (None, ()):
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)


def ref_to(model: type[BaseModel]) -> JsonObject:
    """Return a reference to *model*'s schema in the OpenAPI document."""
    return {"$ref": _REF.format(model=_SUFFIX.sub("", model.__name__))}


def make_schemas(
    bodies: Iterable[type[BaseModel]], answers: Iterable[type[BaseModel]]
) -> Mapping[str, JsonObject]:
    """Return the schemas of these models and of all that they refer to, by name."""
    modes: list[tuple[type[BaseModel], JsonSchemaMode]] = [
        *((model, "validation") for model in dict.fromkeys(bodies)),
        *((model, "serialization") for model in dict.fromkeys(answers)),
    ]
    _, found = models_json_schema(modes, ref_template=_REF, schema_generator=_Generator)
    return cast("Mapping[str, JsonObject]", found["$defs"])
