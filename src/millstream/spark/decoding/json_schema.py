"""A JSON Schema's columns, for values whose schema is in a registry.

Only what has a type in Spark is taken over; the limits of a schema (patterns, ranges) are not
checked here.
"""

from __future__ import annotations

import json
from typing import Any, Final

from pyspark.sql import types as T

from millstream.errors import InvalidArgument

_SIMPLE: Final[dict[str, T.DataType]] = {
    "boolean": T.BooleanType(),
    "integer": T.LongType(),
    "number": T.DoubleType(),
    "string": T.StringType(),
}
_BY_FORMAT: Final[dict[str, T.DataType]] = {"date-time": T.TimestampType(), "date": T.DateType()}
_DEPTH_MAX: Final = 32


def json_schema_type(schema: str) -> T.StructType:
    """The columns of an object's schema."""
    try:
        document = json.loads(schema)
    except ValueError as error:
        raise InvalidArgument(f"the JSON schema is no JSON: {error}") from error
    found = _type_of(document, document, 0)
    if not isinstance(found, T.StructType):
        raise InvalidArgument("the JSON schema is not of an object, so it has no columns")
    return found


def _type_of(schema: Any, root: Any, depth: int) -> T.DataType:
    if depth > _DEPTH_MAX:
        raise InvalidArgument(f"the JSON schema is nested more than {_DEPTH_MAX} deep")
    if not isinstance(schema, dict):
        raise _has_no_type(schema)
    if "$ref" in schema:
        return _type_of(_referred(schema["$ref"], root), root, depth + 1)
    kinds = schema.get("type")
    names = [each for each in (kinds if isinstance(kinds, list) else [kinds]) if each != "null"]
    choices = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    if kinds is None and len(choices) == 1:
        return _type_of(choices[0], root, depth + 1)
    match names:
        case ["object"] if "properties" in schema:
            return T.StructType(
                [
                    T.StructField(name, _type_of(each, root, depth + 1))
                    for name, each in schema["properties"].items()
                ]
            )
        case ["object"] if isinstance(schema.get("additionalProperties"), dict):
            inner = _type_of(schema["additionalProperties"], root, depth + 1)
            return T.MapType(T.StringType(), inner)
        case ["array"] if isinstance(schema.get("items"), dict):
            return T.ArrayType(_type_of(schema["items"], root, depth + 1))
        case ["string"]:
            return _BY_FORMAT.get(schema.get("format", ""), _SIMPLE["string"])
        case [str(name)] if name in _SIMPLE:
            return _SIMPLE[name]
    raise _has_no_type(schema)


def _has_no_type(schema: Any) -> InvalidArgument:
    return InvalidArgument(
        f"the JSON schema has no type for Spark at {json.dumps(schema)[:80]}; "
        "give the columns as valueSchema"
    )


def _referred(reference: Any, root: Any) -> Any:
    begin, *parts = str(reference).split("/")
    found = root if begin == "#" else None
    for part in parts:
        found = found.get(part) if isinstance(found, dict) else None
    if found is None:
        raise InvalidArgument(
            f"the JSON schema refers to {reference}, which it does not have; give valueSchema "
            "instead"
        )
    return found
