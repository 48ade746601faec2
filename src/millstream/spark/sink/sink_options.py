"""Options of writing `format("millstream")`: those of Spark's own Kafka connector, and ours.

`MillstreamDataSource` parses them once per write, on the driver; writers get the parsed values.
Nothing here asks a broker.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from millstream.client.producer.config import ProducerConfig
from millstream.client.producer.settings import config_from_dotted
from millstream.config import ConfigType, any_value, at_least, key, one_of
from millstream.errors import InvalidArgument
from millstream.spark.option_reading import read_options

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from millstream.spark.option_reading import ReadOptions

AT_LEAST_ONCE: Final = "at-least-once"
EXACTLY_ONCE: Final = "exactly-once"

TRANSACTION_TIMEOUT_MS: Final = 900_000
"""As long as brokers allow by default: a task may take its time between its first and last row."""

_STRING: Final = ConfigType.STRING
_SPARKS_OWN: Final = ("checkpointLocation", "path", "queryName")
_REFUSED: Final = {
    "transactional.id": "not here; delivery=exactly-once makes one for each task, and "
    "transactionalIdPrefix says how they begin",
    "key.serializer": "not here; keys are bytes or strings, cast them in the query",
    "value.serializer": "not here; values are bytes or strings, cast them in the query",
    "interceptor.classes": "not here; interceptors could change what is written",
    "partitioner.class": "not here; a column named partition says where a row goes, or its key",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Options of a write, parsed and checked."""

    topic: str | None = key(
        "topic",
        None,
        any_value(),
        "The topic of all rows; it goes before a column named topic.",
        kind=_STRING,
    )
    include_headers: bool = key(
        "includeHeaders",
        False,
        any_value(),
        "Accepted and not needed: a column named headers is written if there is one.",
    )
    delivery: str = key(
        "delivery",
        AT_LEAST_ONCE,
        one_of(AT_LEAST_ONCE, EXACTLY_ONCE),
        "What a failure may do: write rows again, or nothing that a reader of committed records "
        "sees. Ours.",
    )
    transactional_id_prefix: str = key(
        "transactionalIdPrefix",
        "millstream-spark",
        any_value(),
        "How the transactional ids of an exactly-once write begin, and the names of the groups "
        "that keep its markers. Queries may share it. Ours.",
    )
    fingerprint: str = key(
        "fingerprint",
        "content",
        one_of("content", "keys", "count", "none"),
        "What must be the same when a batch is tried again whose rows are already written: whole "
        "rows, their keys, their number, or nothing. Ours.",
    )
    write_id: str | None = key(
        "writeId",
        None,
        any_value(),
        "Names an exactly-once write of a batch (a stream is known by its checkpoint): the same "
        "write and batchId again writes nothing. Ours.",
        kind=_STRING,
    )
    batch_id: int = key(
        "batchId",
        0,
        at_least(0),
        "The number of this batch among those with the same writeId; it must not fall. Ours.",
        kind=ConfigType.LONG,
    )
    client: Mapping[str, str] = field(default_factory=dict)
    """Settings of the producer, by Kafka's names."""

    @property
    def is_exactly_once(self) -> bool:
        """Whether every task writes in a transaction."""
        return self.delivery == EXACTLY_ONCE

    @classmethod
    def parse(cls, options: Mapping[str, Any], *, is_stream: bool) -> Self:
        """Read options; one InvalidArgument tells everything that is wrong with them."""
        read = read_options(
            options, cls, ProducerConfig, refused_client_settings=_REFUSED, others=_SPARKS_OWN
        )
        _check_delivery(read, is_stream=is_stream)
        read.check("topic", read.values.get("topic") != "", "it is empty")
        if not read.faults:
            _check_client(read)
        read.raise_faults()
        return cls(**read.values, client=read.client)


def _check_delivery(read: ReadOptions, *, is_stream: bool) -> None:
    values = read.values
    is_exactly_once = values.get("delivery") == EXACTLY_ONCE
    has_id = bool(values.get("write_id"))
    if is_stream:
        for name, option in (("write_id", "writeId"), ("batch_id", "batchId")):
            read.check(
                option, name not in values, "a stream is known by its checkpoint; it is for batches"
            )
    else:
        read.check(
            "writeId",
            has_id or not is_exactly_once,
            "missing; Spark has no name by which a batch that is run again would be known, so "
            "delivery=exactly-once needs one from you: the same for the same rows",
        )
    read.check("transactionalIdPrefix", values.get("transactional_id_prefix") != "", "it is empty")
    if is_exactly_once:
        read.client.setdefault("transaction.timeout.ms", str(TRANSACTION_TIMEOUT_MS))


def _check_client(read: ReadOptions) -> None:
    """What is wrong with the client's settings taken together."""
    given = dict(read.client)
    if read.values.get("delivery") == EXACTLY_ONCE:
        given["transactional.id"] = "checked"
    try:
        config_from_dotted(given)
    except InvalidArgument as error:
        read.faults.append(f"kafka.*: {error}")
