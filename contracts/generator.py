"""JSON Schema of our models as other languages should see it."""

from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from headbay.domain.document.not_yet import unsupported_fields

__all__ = ["document_schema", "wire_schema"]

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_NOT_YET: Final = "Understood, and not yet supported."


class _Given(GenerateJsonSchema):
    """For documents: a field is given or left out, but never null."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        """The schema of what is given."""
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """None stands for "left out" and is no default of the format."""
        return self.generate_inner(schema["schema"])


def document_schema(model: type[BaseModel], name: str) -> dict[str, Any]:
    """The schema of what people write."""
    schema = model.model_json_schema(by_alias=True, schema_generator=_Given)
    parts = {model.__name__: schema, **schema["$defs"]}
    for part, fields in unsupported_fields().items():
        for field in fields:
            place = parts[part]["properties"][field]
            said = place.get("description", "")
            place["description"] = f"{said} {_NOT_YET}".strip()
    _close(schema)
    return _framed(schema, name)


def wire_schema(model: type[BaseModel], name: str) -> dict[str, Any]:
    """The schema of what Headbay answers. Readers must tolerate fields they do not know."""
    return _framed(model.model_json_schema(mode="serialization"), name)


def _framed(schema: dict[str, Any], name: str) -> dict[str, Any]:
    return {"$schema": _DIALECT, "$id": f"urn:headbay:v1:{name}", **_untitled(schema)}


def _close(value: Any) -> None:
    """Let mappings whose keys have a pattern allow no other keys, as the models do."""
    if isinstance(value, dict):
        if "patternProperties" in value:
            value.setdefault("additionalProperties", False)
        for item in value.values():
            _close(item)
    elif isinstance(value, list):
        for item in value:
            _close(item)


def _untitled(value: Any, *, names: bool = False) -> Any:
    """Without the titles that only repeat a field's name.

    Args:
        value: A schema, or part of one.
        names: Whether its keys are names of fields or definitions, not keywords.
    """
    if isinstance(value, list):
        return [_untitled(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _untitled(item, names=not names and key in ("properties", "$defs"))
        for key, item in value.items()
        if names or key != "title" or not isinstance(item, str)
    }
