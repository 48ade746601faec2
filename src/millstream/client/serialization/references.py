"""Schemas that another schema refers to, from a registry: all of them, however deep.

A reference names a version, which never changes, so what is found here may be kept. Nothing is
parsed here: what a schema's text means is its format's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.client.serialization.schema_registry import (
        RegisteredSchema,
        Schema,
        SchemaRegistryClient,
    )


def referenced(registry: SchemaRegistryClient, schema: Schema) -> dict[str, RegisteredSchema]:
    """Every schema that one refers to, by the name it has there; what others need comes first."""
    found: dict[str, RegisteredSchema] = {}
    _gather(registry, schema, found, set())
    return found


def _gather(
    registry: SchemaRegistryClient,
    schema: Schema,
    found: dict[str, RegisteredSchema],
    seen: set[str],
) -> None:
    for each in schema.references:
        if each.name in seen:
            continue
        seen.add(each.name)
        there = registry.version(each.subject, each.version)
        _gather(registry, there.schema, found, seen)
        found[each.name] = there
