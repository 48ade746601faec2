"""Options of decoding, read and checked; all faults are told in one error.

They stand beside the source's own options and are declared in the same way, so the reference page
has them too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.config import ConfigType, any_value, key, keys_of, one_of
from millstream.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Self

_STRING: Final = ConfigType.STRING
_FORMATS: Final = ("json", "avro", "protobuf")
_FATES: Final = ("column", "deadLetter", "drop", "fail")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingOptions:
    """How values become columns."""

    value_format: str | None = key(
        "valueFormat",
        None,
        one_of(*_FORMATS),
        "Decode values in the source: the column value becomes a struct.",
        kind=_STRING,
    )
    value_schema: str | None = key(
        "valueSchema",
        None,
        any_value(),
        "The schema of values: for json Spark's DDL (id BIGINT, at TIMESTAMP), for avro the Avro "
        "schema, for protobuf a file descriptor set in base64.",
        kind=_STRING,
    )
    value_schema_file: str | None = key(
        "valueSchemaFile",
        None,
        any_value(),
        "A file with that schema, read where the query is started; for protobuf what "
        "protoc --include_imports --descriptor_set_out writes.",
        kind=_STRING,
    )
    value_message: str | None = key(
        "valueMessage",
        None,
        any_value(),
        "The full name of the protobuf message; without it, the first of the last file, or of the "
        "registered one. With a registry, other messages cannot be decoded.",
        kind=_STRING,
    )
    value_subject: str | None = key(
        "valueSubject",
        None,
        any_value(),
        "The registry's subject whose latest version, with all that it refers to, gives the "
        "columns: usually orders-value for the topic orders. A valueSchema goes before it.",
        kind=_STRING,
    )
    registry_url: str | None = key(
        "schemaRegistryUrl",
        None,
        any_value(),
        "A schema registry: values begin with the id of the schema they were written with.",
        kind=_STRING,
    )
    registry_username: str = key(
        "schemaRegistryUsername", "", any_value(), "The user to ask the registry as."
    )
    registry_password: str = key(
        "schemaRegistryPassword", "", any_value(), "Its password.", kind=ConfigType.PASSWORD
    )
    registry_token: str = key(
        "schemaRegistryToken", "", any_value(), "A bearer token instead.", kind=ConfigType.PASSWORD
    )
    on_decode_error: str = key(
        "onDecodeError",
        "column",
        one_of(*_FATES),
        "What becomes of a value that cannot be decoded: a null with its bytes and the cause in "
        "the column _error; a record with the cause in its headers in deadLetterTopic; nothing; "
        "or the end of the job.",
    )
    dead_letter_topic: str | None = key(
        "deadLetterTopic",
        None,
        any_value(),
        "Where values go that cannot be decoded. A task that runs twice writes them twice.",
        kind=_STRING,
    )

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> Self:
        """Read options by their names, in any case; those of others are left alone."""
        given = {name.lower(): str(value) for name, value in options.items() if value is not None}
        values: dict[str, Any] = {}
        faults: list[str] = []
        for field_name, each in keys_of(cls).items():
            text = given.get(each.name.lower())
            if text is None:
                continue
            value = _in_proper_case(text)
            if (must_be := each.fault_of(value)) is not None:
                faults.append(f"{each.name}={text!r}: must be {must_be}")
            else:
                values[field_name] = value
        parsed = cls(**values)
        faults += parsed._faults()
        if faults:
            raise InvalidArgument("; ".join(faults))
        return parsed

    def _faults(self) -> list[str]:
        found = []
        if self.value_format is None:
            given = [each.name for name, each in keys_of(type(self)).items() if self._has(name)]
            return [f"{', '.join(given)}: without valueFormat nothing is decoded"] if given else []
        if self.value_schema is not None and self.value_schema_file is not None:
            found.append("give valueSchema or valueSchemaFile, not both")
        if self.value_subject is not None and self.registry_url is None:
            found.append("valueSubject needs schemaRegistryUrl")
        is_dead_letter = self.on_decode_error == "deadLetter"
        if is_dead_letter != (self.dead_letter_topic is not None):
            found.append("onDecodeError=deadLetter and deadLetterTopic need each other")
        return found

    def _has(self, field_name: str) -> bool:
        default = keys_of(type(self))[field_name].default
        return bool(getattr(self, field_name) != default)

    def schema_text(self) -> str | None:
        """The schema that was given, from wherever."""
        if self.value_schema_file is None:
            return self.value_schema
        path = Path(self.value_schema_file)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise InvalidArgument(f"valueSchemaFile={path}: {error.strerror}") from error
        if self.value_format == "protobuf":
            import base64

            return base64.b64encode(content).decode("ascii")
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InvalidArgument(f"valueSchemaFile={path}: it is no UTF-8: {error}") from error


OPTION_NAMES: Final = tuple(each.name for each in keys_of(DecodingOptions).values())
"""The names of all options here."""


def _in_proper_case(text: str) -> str:
    """The word of a choice as it is written here, whatever case it was given in."""
    words = {each.lower(): each for each in (*_FORMATS, *_FATES)}
    return words.get(text.strip().lower(), text)
