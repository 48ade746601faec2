"""A JSON Schema's columns, for values whose schema is in a registry.

Only what has a type in Spark is taken over; the limits of a schema (patterns, ranges) are not
checked here.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urljoin

from pyspark.sql import types as T

from millstream.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

_SIMPLE: Final[dict[str, T.DataType]] = {
    "boolean": T.BooleanType(),
    "integer": T.LongType(),
    "number": T.DoubleType(),
    "string": T.StringType(),
}
_BY_FORMAT: Final[dict[str, T.DataType]] = {"date-time": T.TimestampType(), "date": T.DateType()}
_DEPTH_MAX: Final = 32


def json_schema_type(schema: str, imported: Mapping[str, str] | None = None) -> T.StructType:
    """The columns of an object's schema. `imported` has the schemas that it refers to, by name."""
    documents = {name: _loaded(text) for name, text in (imported or {}).items()}
    document = _loaded(schema)
    found = _Types(documents).of(document, document, 0)
    if not isinstance(found, T.StructType):
        raise InvalidArgument("the JSON schema is not of an object, so it has no columns")
    return found


def _loaded(schema: str) -> Any:
    try:
        return json.loads(schema)
    except ValueError as error:
        raise InvalidArgument(f"the JSON schema is no JSON: {error}") from error


class _Types:
    """Translates a schema, which is a part of the document `root`."""

    def __init__(self, documents: Mapping[str, Any]) -> None:
        self._documents = documents

    def of(self, schema: Any, root: Any, depth: int) -> T.DataType:
        if depth > _DEPTH_MAX:
            raise InvalidArgument(f"the JSON schema is nested more than {_DEPTH_MAX} deep")
        if not isinstance(schema, dict):
            raise _has_no_type(schema)
        if "$ref" in schema:
            return self.of(*self._referred(str(schema["$ref"]), root), depth + 1)
        kinds = schema.get("type")
        names = [each for each in (kinds if isinstance(kinds, list) else [kinds]) if each != "null"]
        choices = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
        if kinds is None and len(choices) == 1:
            return self.of(choices[0], root, depth + 1)
        match names:
            case ["object"] if "properties" in schema:
                return T.StructType(
                    [
                        T.StructField(name, self.of(each, root, depth + 1))
                        for name, each in schema["properties"].items()
                    ]
                )
            case ["object"] if isinstance(schema.get("additionalProperties"), dict):
                inner = self.of(schema["additionalProperties"], root, depth + 1)
                return T.MapType(T.StringType(), inner)
            case ["array"] if isinstance(schema.get("items"), dict):
                return T.ArrayType(self.of(schema["items"], root, depth + 1))
            case ["string"]:
                return _BY_FORMAT.get(schema.get("format", ""), _SIMPLE["string"])
            case [str(name)] if name in _SIMPLE:
                return _SIMPLE[name]
        raise _has_no_type(schema)

    def _referred(self, reference: str, root: Any) -> tuple[Any, Any]:
        """What a reference means, and the document that it is in."""
        name, _, pointer = reference.partition("#")
        document = self._document(name, root) if name else root
        found = document
        for part in pointer.split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, dict) else None
        if found is None:
            raise InvalidArgument(
                f"the JSON schema refers to {reference}, which it does not have; give valueSchema "
                "instead"
            )
        return found, document

    def _document(self, name: str, root: Any) -> Any:
        """A document by its name in the registry, which may stand for an address in full."""
        if name in self._documents:
            return self._documents[name]
        base = str(root.get("$id", "")) if isinstance(root, dict) else ""
        by_address = {urljoin(base, each): found for each, found in self._documents.items()}
        return by_address.get(urljoin(base, name))


def _has_no_type(schema: Any) -> InvalidArgument:
    return InvalidArgument(
        f"the JSON schema has no type for Spark at {json.dumps(schema)[:80]}; "
        "give the columns as valueSchema"
    )
