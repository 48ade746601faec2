"""kio as a second opinion: its classes by name and version, its values in our terms."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import inspect
import io
import pkgutil
import uuid
from functools import cache
from typing import TYPE_CHECKING, Any

import kio.schema
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from millstream.types import Uuid

if TYPE_CHECKING:
    from tests.strategies.messages import Overrides


@cache
def kio_classes() -> dict[tuple[str, int], Any]:
    """Every message that kio has, by name and version."""
    found: dict[tuple[str, int], Any] = {}
    for info in pkgutil.walk_packages(kio.schema.__path__, "kio.schema."):
        if info.name.count(".") != 4:
            continue
        module = importlib.import_module(info.name)
        for name, value in vars(module).items():
            if inspect.isclass(value) and value.__module__ == info.name:
                kind = getattr(value, "__type__", None)
                if kind is not None and kind.name != "nested":
                    found[name, int(getattr(value, "__version__"))] = value  # noqa: B009
    return found


@cache
def overrides() -> Overrides:
    """What to draw for fields to which kio gives a richer type than the wire has."""
    drawn: dict[str, st.SearchStrategy[Any]] = {}
    instants = st.integers(0, 4_000_000_000_000)
    durations = st.integers(0, 2_000_000_000)
    richer = {
        "error_code": st.sampled_from([int(code.value) for code in ErrorCode]),
        "datetime_i64": instants,
        "timedelta_i32": durations,
        "timedelta_i64": durations,
    }
    for root in kio_classes().values():
        for cls in _classes_in(root):
            for field in dataclasses.fields(cls):
                kind = field.metadata.get("kafka_type")
                if kind in richer:
                    drawn[field.name] = drawn[f"{field.name}_ms"] = richer[kind]
    return drawn


def _classes_in(cls: Any) -> list[Any]:
    module = importlib.import_module(cls.__module__)
    return [value for value in vars(module).values() if dataclasses.is_dataclass(value)]


def read(cls: Any, encoded: bytes) -> tuple[Any, int]:
    """kio's reading of our bytes, and how many of them it took."""
    entity, size = _reader(cls)(encoded, 0)
    return entity, size


def write(entity: Any) -> bytes:
    """kio's bytes of its own value."""
    out = io.BytesIO()
    writer: Any = _writer
    writer(type(entity))(out, entity)
    return out.getvalue()


@cache
def _reader(cls: Any) -> Any:
    return entity_reader(cls)


@cache
def _writer(cls: Any) -> Any:
    return entity_writer(cls)


def equals(ours: Any, theirs: Any) -> bool:
    """Whether a message or value of ours says the same as one of kio's."""
    if dataclasses.is_dataclass(theirs):
        fields = dataclasses.fields(theirs)
        if ours is None:  # a tagged struct that was not sent, which kio shows as its default
            return all(_is_default(field, getattr(theirs, field.name)) for field in fields)
        return all(equals(_ours(ours, f.name), getattr(theirs, f.name)) for f in fields)
    if isinstance(theirs, tuple):
        return len(ours) == len(theirs) and all(map(equals, ours, theirs))
    return bool(ours == _plain(theirs, ours))


def _is_default(field: dataclasses.Field[Any], value: Any) -> bool:
    return not value if field.default is dataclasses.MISSING else bool(value == field.default)


# Where kio spells a name in another way, or has it from an older Kafka.
_OUR_NAMES = {
    "acceptable_recovery_lag": "acceptable_recovery_lag_legacy",
    "generation_id": "generation_id_or_member_epoch",
    "k_raft_version": "kraft_version",
    "k_raft_version_feature": "kraft_version_feature",
}


def _ours(message: Any, name: str) -> Any:
    """kio drops the unit from the names of durations and instants, since their types have it."""
    candidates = (_OUR_NAMES.get(name, name), name, f"{name}_ms", name.rstrip("_"))
    return next(getattr(message, each) for each in candidates if hasattr(message, each))


def _plain(value: Any, ours: Any) -> Any:
    if isinstance(value, ErrorCode):
        return int(value.value)
    if isinstance(value, datetime.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, uuid.UUID):
        return Uuid(value.bytes)
    if value is None and isinstance(ours, Uuid):
        return Uuid.ZERO
    return value
