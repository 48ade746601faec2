"""What the serdes with a schema registry share: subjects, ids, the frame, keys and values.

`AvroSerde`, `ProtobufSerde` and `JsonSchemaSerde` say how a payload is written and read. None
stays None. Asking the registry blocks, once per schema; `lookups` keeps that out of event loops.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from millstream.client.serialization.base import raise_undeserializable, raise_unserializable
from millstream.client.serialization.framing import SubjectNaming, frame, subject_naming, unframe
from millstream.client.serialization.lookups import LookupNeeded
from millstream.errors import InvalidArgument, MillstreamError

if TYPE_CHECKING:
    from collections.abc import MutableSequence

    from millstream.client.serialization.schema_registry import Schema, SchemaRegistryClient
    from millstream.types import Headers

T = TypeVar("T")


class RegistrySerde(ABC, Generic[T]):
    """Values whose schema is in a registry; the bytes name it by its id."""

    def __init__(
        self,
        registry: SchemaRegistryClient,
        *,
        subject_name: SubjectNaming = "topic",
        auto_register: bool = True,
        use_latest: bool = False,
        normalize: bool = False,
        is_key: bool = False,
    ) -> None:
        """How a schema that is sent gets its id.

        `auto_register` makes a new version of the subject of a schema that is not there; without
        it such a schema is an error. `use_latest` writes with the newest version of the subject,
        whatever schema this serde has.
        """
        if auto_register and use_latest:
            raise InvalidArgument("use_latest=True writes with what is there: auto_register=False")
        self._registry = registry
        self._naming = subject_naming(subject_name)
        self._auto_register = auto_register
        self._use_latest = use_latest
        self._normalize = normalize
        self._is_key = is_key
        self._written_with: dict[str, tuple[int, Schema]] = {}

    def for_side(self, *, is_key: bool) -> Self:
        """The same for keys or values: their schemas have subjects of their own."""
        if self._is_key == is_key:
            return self
        other = copy.copy(self)
        other._is_key = is_key
        other._written_with = {}
        return other

    def serialize(
        self, topic: str, value: T | None, headers: MutableSequence[tuple[str, bytes | None]]
    ) -> bytes | None:
        """The framed bytes to send; None stays None."""
        if value is None:
            return None
        try:
            subject = self._naming(topic, self._is_key, self._record_name(value))
            schema_id, schema = self._schema_for(subject, value)
            return frame(schema_id, self._encode(value, schema), self._indexes(value))
        except LookupNeeded as needed:
            needed.look_up = partial(self.serialize, topic, value, [])
            raise
        except MillstreamError:
            raise
        except Exception as error:
            raise_unserializable(type(self).__name__, topic, value, error)

    def deserialize(self, topic: str, data: bytes | None, headers: Headers) -> T | None:
        """The value that was sent; None stays None."""
        if data is None:
            return None
        try:
            schema_id, position = unframe(data)
            value: T = self._decode(data, position, schema_id)
        except LookupNeeded as needed:
            needed.look_up = partial(self.deserialize, topic, data, headers)
            raise
        except MillstreamError:
            raise
        except Exception as error:
            raise_undeserializable(type(self).__name__, topic, data, error)
        return value

    def _schema_for(self, subject: str, value: T) -> tuple[int, Schema]:
        known = self._written_with.get(subject)
        if known is None:
            known = self._find_schema(subject, value)
            self._written_with[subject] = known
        return known

    def _find_schema(self, subject: str, value: T) -> tuple[int, Schema]:
        own = None if self._use_latest else self._schema_of(value)
        if own is None:
            latest = self._registry.version(subject)
            return latest.id, latest.schema
        if self._auto_register:
            return self._registry.register(subject, own, normalize=self._normalize), own
        return self._registry.lookup(subject, own, normalize=self._normalize).id, own

    def _indexes(self, value: T) -> bytes:
        return b""

    @abstractmethod
    def _schema_of(self, value: T) -> Schema | None:
        """The schema that this serde writes with; None to take the subject's latest."""

    @abstractmethod
    def _record_name(self, value: T) -> str:
        """The full name of the record, for subjects that are named by it; "" without one."""

    @abstractmethod
    def _encode(self, value: T, schema: Schema) -> bytes:
        """The payload."""

    @abstractmethod
    def _decode(self, data: bytes, position: int, schema_id: int) -> Any:
        """The value whose payload begins at `position` and was written with that schema."""
