"""Values to bytes and back: plain types, JSON, models, Avro, Protobuf, JSON Schema.

Producers and consumers take these as `key_serializer`, `value_deserializer` and so on, by object or
by name; the command line and Spark use the same. What needs a package beyond Millstream's own
(fastavro, protobuf, jsonschema, msgspec, pydantic) is imported by the class that needs it. Nothing
here sends records; `schema_registry` alone speaks to the network, over HTTP.
"""

from __future__ import annotations

from millstream.client.serialization.base import Deserializer, Serde, Serializer
from millstream.client.serialization.json import JsonSerde
from millstream.client.serialization.models import MsgspecSerde, PydanticSerde
from millstream.client.serialization.primitives import (
    BytesSerde,
    FloatSerde,
    IntSerde,
    StrSerde,
    UuidSerde,
)
from millstream.client.serialization.resolution import (
    SERDES_BY_NAME,
    as_deserializer,
    as_serializer,
)

__all__ = [
    "SERDES_BY_NAME",
    "BytesSerde",
    "Deserializer",
    "FloatSerde",
    "IntSerde",
    "JsonSerde",
    "MsgspecSerde",
    "PydanticSerde",
    "Serde",
    "Serializer",
    "StrSerde",
    "UuidSerde",
    "as_deserializer",
    "as_serializer",
]
