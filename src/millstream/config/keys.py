"""The declaration of one setting, and how to find the declarations of a settings class.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class LogConfig:
        segment_bytes: int = key("segment.bytes", 1 << 30, at_least(1 << 20), "Roll at this size.")

        def __post_init__(self) -> None:
            validate(self)

Everything else (parsing, checking, the reference page) is derived from these declarations.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.config.validators import Validator

T = TypeVar("T")

_METADATA: Final = "millstream.config.key"
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)

REQUIRED: Final[Any] = object()
"""The default of a setting that has none."""


class ConfigType(IntEnum):
    """Kafka's types of a setting; the numbers are those of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class UpdateMode(Enum):
    """When a new value of a broker's setting takes effect."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


_INTEGER_BITS: Final[Mapping[ConfigType, int]] = {
    ConfigType.SHORT: 16,
    ConfigType.INT: 32,
    ConfigType.LONG: 64,
}

_ALLOWED_BY_TYPE: Final[Mapping[ConfigType, str]] = {
    ConfigType.BOOLEAN: "true or false",
    ConfigType.STRING: "a string",
    ConfigType.SHORT: "a whole number of 16 bits",
    ConfigType.INT: "a whole number of 32 bits",
    ConfigType.LONG: "a whole number of 64 bits",
    ConfigType.DOUBLE: "a number",
    ConfigType.LIST: "a comma-separated list",
    ConfigType.CLASS: "a class name",
    ConfigType.PASSWORD: "a string",
}


@dataclass(frozen=True, slots=True)
class Synonym:
    """Another key that gives the same setting, in another unit or on another level.

    A topic's `retention.ms` falls back to the broker's `log.retention.ms`, then to
    `log.retention.minutes` (scale 60,000), then to `log.retention.hours`.
    """

    name: str
    scale: int = 1


@dataclass(frozen=True, slots=True)
class Key:
    """One setting: Kafka's name, type, default, rule, and the sentence of the reference page."""

    name: str
    type: ConfigType
    default: Any
    validator: Validator
    doc: str
    unit: str = ""
    synonyms: tuple[Synonym, ...] = ()
    update_mode: UpdateMode = UpdateMode.READ_ONLY
    is_internal: bool = False

    @property
    def is_sensitive(self) -> bool:
        """Whether its value must never be shown."""
        return self.type is ConfigType.PASSWORD

    @property
    def allowed(self) -> str:
        """The rule in words: the type's when the validator adds nothing."""
        if self.validator.allowed == "any value":
            return _ALLOWED_BY_TYPE[self.type]
        return self.validator.allowed

    @property
    def allowed_texts(self) -> str:
        """The rule for who has given no value of the type at all."""
        by_type = _ALLOWED_BY_TYPE[self.type]
        is_number = self.type in _INTEGER_BITS or self.type is ConfigType.DOUBLE
        return (
            f"{by_type}, {self.allowed}" if is_number and self.allowed != by_type else self.allowed
        )

    def fault_of(self, value: object) -> str | None:
        """What the value must be instead, or None when it is fine."""
        if value is None and self.default is None:
            return None
        if not _has_type(value, self.type):
            return _ALLOWED_BY_TYPE[self.type]
        return None if self.validator.accepts(value) else self.allowed

    def parse(self, text: str) -> object:
        """Read the value as a properties file or a request spells it; ValueError if it cannot."""
        return _parse_text(text, self.type)

    def format(self, value: object) -> str:
        """Spell a value so that `parse` reads it back; a password stays hidden."""
        if self.is_sensitive and value is not None:
            return "[hidden]"
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(str(item) for item in value)
        return "" if value is None else str(value)


def key(
    name: str,
    default: T,
    validator: Validator,
    doc: str,
    *,
    kind: ConfigType | None = None,
    unit: str = "",
    synonyms: tuple[Synonym | str, ...] = (),
    update_mode: UpdateMode = UpdateMode.READ_ONLY,
    is_internal: bool = False,
) -> T:
    """Declare a setting as a dataclass field.

    The type follows from the default (an integer is an INT) unless `kind` says otherwise.
    `unit` is "ms" or "bytes", for the reference page. A default of None allows "not set".
    """
    declared = Key(
        name,
        kind if kind is not None else _type_of_default(name, default),
        default,
        validator,
        doc,
        unit,
        tuple(Synonym(each) if isinstance(each, str) else each for each in synonyms),
        update_mode,
        is_internal,
    )
    metadata = {_METADATA: declared}
    if default is REQUIRED:
        field: Any = dataclasses.field(metadata=metadata)
    else:
        field = dataclasses.field(default=default, metadata=metadata)
    return field  # type: ignore[no-any-return]  # A Field stands where the value will be.


def keys_of(settings: type) -> Mapping[str, Key]:
    """The declared settings of a class: field name to key, in order of declaration."""
    keys = _found.get(settings)
    if keys is None:
        keys = _found[settings] = MappingProxyType(
            {
                field.name: field.metadata[_METADATA]
                for field in dataclasses.fields(settings)
                if _METADATA in field.metadata
            }
        )
    return keys


_found: Final[dict[type, Mapping[str, Key]]] = {}
"""By class: a client looks them up dozens of times while it is made."""


def _type_of_default(name: str, default: object) -> ConfigType:
    match default:
        case bool():
            return ConfigType.BOOLEAN
        case int():
            return ConfigType.INT
        case float():
            return ConfigType.DOUBLE
        case str():
            return ConfigType.STRING
        case tuple():
            return ConfigType.LIST
        case _:
            raise TypeError(f"{name}: give kind=, the default {default!r} does not tell the type")


def _has_type(value: object, kind: ConfigType) -> bool:
    if kind in _INTEGER_BITS:
        half = 1 << (_INTEGER_BITS[kind] - 1)
        return isinstance(value, int) and not isinstance(value, bool) and -half <= value < half
    if kind is ConfigType.BOOLEAN:
        return isinstance(value, bool)
    if kind is ConfigType.DOUBLE:
        return isinstance(value, int | float) and not isinstance(value, bool) and value == value
    if kind is ConfigType.LIST:
        return isinstance(value, tuple) and all(isinstance(item, str) for item in value)
    return isinstance(value, str)


def _parse_text(text: str, kind: ConfigType) -> object:
    stripped = text.strip()
    if kind in _INTEGER_BITS:
        if not _INTEGER.fullmatch(stripped):
            raise ValueError(text)
        return int(stripped)
    if kind is ConfigType.BOOLEAN:
        if stripped.lower() not in ("true", "false"):
            raise ValueError(text)
        return stripped.lower() == "true"
    if kind is ConfigType.DOUBLE:
        if not _DECIMAL.fullmatch(stripped):
            raise ValueError(text)
        return float(stripped)
    if kind is ConfigType.LIST:
        return tuple(dict.fromkeys(item.strip() for item in stripped.split(",") if item.strip()))
    return stripped
