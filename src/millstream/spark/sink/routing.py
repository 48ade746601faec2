"""Which columns of a DataFrame are written, and to which topic each row goes.

The rules for names and types are those of Spark's own Kafka sink, and so is the wording of what
does not fit. Writers check the schema on the driver and split each Arrow batch on the executor.
Partitions are the producer's choice, by the same rules as for any record: the column `partition`
if it is there and not null, else the hash of the key. Nothing here sends anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_HEADERS: Final = "array<struct<key:string,value:binary>>"
_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": (_HEADERS,),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
"""The columns of a record, with the types that each may have. All others are left out."""


def types_of(schema: Any) -> dict[str, str]:
    """The columns of a Spark schema and their types, as Spark writes them."""
    return {field.name: field.dataType.simpleString() for field in schema.fields}


@dataclass(frozen=True, slots=True)
class Routing:
    """What is taken from each row, and the topic if it is one for all."""

    columns: tuple[str, ...]
    topic: str | None

    @classmethod
    def of(cls, types: Mapping[str, str], topic: str | None) -> Routing:
        """Check the columns of a DataFrame; InvalidArgument if they cannot be records."""
        if topic is None:
            if "topic" not in types:
                raise InvalidArgument(
                    "topic option required when no 'topic' attribute is present. Use the topic "
                    "option for setting a topic."
                )
            _check_type("topic", types["topic"], ("string",))
        if "value" not in types:
            raise InvalidArgument("Required attribute 'value' not found")
        columns = tuple(name for name in _TYPES if name in types)
        for name in columns:
            _check_type(name, types[name], _TYPES[name])
        return cls(columns, topic)

    def split(self, batch: Any) -> Iterator[tuple[str, Any]]:
        """The rows of an Arrow batch by topic, as `Producer.send_batch` takes them."""
        if not batch.num_rows:
            return
        rows = batch.select(list(self.columns))
        if self.topic is not None:
            yield self.topic, rows
            return
        topics = batch.column(batch.schema.get_field_index("topic"))
        if topics.null_count:
            raise InvalidArgument(
                "null topic present in the data. Use the topic option for setting a topic."
            )
        names = topics.unique().to_pylist()
        for name in names:
            # One topic for a whole batch is common, and then nothing is copied.
            yield name, rows if len(names) == 1 else rows.filter(_equals(topics, name))


def _equals(column: Any, value: str) -> Any:
    import pyarrow.compute as pc  # Where this runs, Spark has imported it already.

    return pc.equal(column, value)


def _check_type(name: str, given: str, wanted: tuple[str, ...]) -> None:
    # A string may have a length or a collation; on the wire that makes no difference.
    plain = "string" if given.startswith(("string", "varchar", "char")) else given
    if plain not in wanted:
        raise InvalidArgument(
            f"{name} attribute unsupported type {given}. {name} must be a(n) {' or '.join(wanted)}"
        )
