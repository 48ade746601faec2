"""Options of reading `format("millstream")`, named as Spark's own Kafka connector has them.

`MillstreamDataSource` parses them once, on the driver; planning and reading get the parsed values.
A job moves here by changing the name of its format. Nothing here asks a broker.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from millstream.client.consumer.config import ConsumerConfig
from millstream.config import ConfigType, any_value, at_least, key, one_of
from millstream.errors import InvalidArgument
from millstream.spark.option_reading import ReadOptions, parse_duration_ms, read_options
from millstream.spark.source.offsets import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    AtOffsets,
    AtTime,
    Bound,
    Edge,
    parse_bound,
    parse_partitions,
    parse_times,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Self

    from millstream.types import TopicPartition

_STRING: Final = ConfigType.STRING
_LONG: Final = ConfigType.LONG

_SELECTIONS: Final = ("assign", "subscribe", "subscribePattern")
_BATCH_ONLY: Final = {
    "ending_offsets": "endingOffsets",
    "ending_timestamp": "endingTimestamp",
    "ending_offsets_by_timestamp": "endingOffsetsByTimestamp",
}
_logger: Final = logging.getLogger(__name__)
_REFUSED: Final = {
    "auto.offset.reset": "not here; startingOffsets says where a query begins, and its checkpoint "
    "where it goes on",
    "enable.auto.commit": "not here; the checkpoint keeps the offsets",
    "key.deserializer": "not here; keys are bytes, cast them in the query",
    "value.deserializer": "not here; values are bytes, or typed columns with valueFormat",
    "interceptor.classes": "not here; interceptors could change what is read",
    **dict.fromkeys(
        ("group.instance.id", "group.protocol", "group.remote.assignor"),
        "not here; reading joins no group",
    ),
}


@dataclass(frozen=True, slots=True)
class Topics:
    """Topics by name."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """Topics whose whole name matches."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Partitions:
    """Certain partitions."""

    partitions: tuple[TopicPartition, ...]


Selection: TypeAlias = Topics | TopicPattern | Partitions
"""What is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Options of a read, parsed and checked."""

    subscribe: str | None = key(
        "subscribe", None, any_value(), "The topics to read, separated by commas.", kind=_STRING
    )
    subscribe_pattern: str | None = key(
        "subscribePattern",
        None,
        any_value(),
        "A regular expression: every topic whose whole name matches is read, new ones too.",
        kind=_STRING,
    )
    assign: str | None = key(
        "assign",
        None,
        any_value(),
        'The partitions to read, as JSON: {"orders": [0, 1]}.',
        kind=_STRING,
    )
    starting_offsets: str | None = key(
        "startingOffsets",
        None,
        any_value(),
        "Where to begin: earliest (the default of a batch), latest (of a stream), or an offset for "
        'every partition as JSON, {"orders": {"0": 23, "1": -2}}; -2 is earliest, -1 latest. A '
        "stream with a checkpoint goes on from there; partitions that are new to it begin at "
        "earliest.",
        kind=_STRING,
    )
    ending_offsets: str | None = key(
        "endingOffsets",
        None,
        any_value(),
        "Where a batch ends: latest, or as JSON an offset for every partition, without which the "
        "batch ends.",
        kind=_STRING,
    )
    starting_timestamp: int | None = key(
        "startingTimestamp",
        None,
        at_least(0),
        "Begin at the first record of each partition that is not older, in ms since 1970. It goes "
        "before startingOffsetsByTimestamp, and that before startingOffsets.",
        kind=_LONG,
        unit="ms",
    )
    ending_timestamp: int | None = key(
        "endingTimestamp",
        None,
        at_least(0),
        "End a batch before the first record of each partition that is not older.",
        kind=_LONG,
        unit="ms",
    )
    starting_offsets_by_timestamp: str | None = key(
        "startingOffsetsByTimestamp",
        None,
        any_value(),
        'The same with a time for every partition, as JSON: {"orders": {"0": 1700000000000}}.',
        kind=_STRING,
    )
    ending_offsets_by_timestamp: str | None = key(
        "endingOffsetsByTimestamp",
        None,
        any_value(),
        "The same for the end of a batch.",
        kind=_STRING,
    )
    starting_offsets_by_timestamp_strategy: str = key(
        "startingOffsetsByTimestampStrategy",
        "error",
        one_of("error", "latest"),
        "When no record of a partition is as new as the starting time: fail, or begin at its end.",
    )
    starting_group: str | None = key(
        "startingGroup",
        None,
        any_value(),
        "Begin where this consumer group has committed; partitions of which it has committed "
        "nothing begin at startingOffsets. Ours.",
        kind=_STRING,
    )
    fail_on_data_loss: bool = key(
        "failOnDataLoss",
        True,
        any_value(),
        "Fail when records that should be read are gone; false reads on behind the gap.",
    )
    max_offsets_per_trigger: int | None = key(
        "maxOffsetsPerTrigger",
        None,
        at_least(1),
        "The most offsets of one micro-batch, shared by the partitions as much as each has.",
        kind=_LONG,
    )
    min_offsets_per_trigger: int | None = key(
        "minOffsetsPerTrigger",
        None,
        at_least(1),
        "Wait for so many offsets before a micro-batch, at most for maxTriggerDelay.",
        kind=_LONG,
    )
    max_trigger_delay: str = key(
        "maxTriggerDelay",
        "15m",
        any_value(),
        "How long minOffsetsPerTrigger may hold back what is there: 500ms, 30s, 15m, 1h.",
    )
    min_partitions: int | None = key(
        "minPartitions",
        None,
        at_least(1),
        "Read with so many tasks at least: large ranges of offsets are split.",
        kind=ConfigType.INT,
    )
    max_records_per_partition: int | None = key(
        "maxRecordsPerPartition",
        None,
        at_least(1),
        "The most offsets of one task: larger ranges are split.",
        kind=_LONG,
    )
    include_headers: bool = key("includeHeaders", False, any_value(), "Add the column headers.")
    group_id_prefix: str | None = key(
        "groupIdPrefix",
        None,
        any_value(),
        "Accepted and not needed: reading joins no group and commits nothing.",
        kind=_STRING,
    )
    group_id: str | None = key(
        "kafka.group.id",
        None,
        any_value(),
        "Accepted with a warning and without effect: reading joins no group and commits nothing. "
        "startingGroup begins where a group has committed, commit_offsets_of commits to one.",
        kind=_STRING,
    )
    poll_timeout_ms: int = key(
        "kafkaConsumer.pollTimeoutMs",
        120_000,
        at_least(1),
        "A task fails when nothing arrives for this long.",
        kind=_LONG,
        unit="ms",
    )
    offset_retries: int = key(
        "fetchOffset.numRetries",
        3,
        at_least(0),
        "Accepted and not needed: the driver asks again for kafka.default.api.timeout.ms.",
    )
    offset_retry_interval_ms: int = key(
        "fetchOffset.retryIntervalMs",
        10,
        at_least(0),
        "Accepted and not needed: kafka.retry.backoff.ms says how long it waits before that.",
        kind=_LONG,
        unit="ms",
    )
    idle_wait_ms: int = key(
        "idleWaitMs",
        200,
        at_least(0),
        "How long a stream that has nothing new waits at the broker before it tells Spark so. "
        "Records that arrive end the wait. Ours.",
        kind=_LONG,
        unit="ms",
    )
    selection: Selection = field(default=Topics(()))
    """What is read."""
    start: Bound = Edge.EARLIEST
    """Where reading begins."""
    end: Bound = Edge.LATEST
    """Where a batch ends."""
    max_trigger_delay_ms: int = 900_000
    client: Mapping[str, str] = field(default_factory=dict)
    """Settings of the consumer, by Kafka's names."""
    decoding: Mapping[str, str] = field(default_factory=dict)
    """Options of `millstream.spark.decoding`."""

    @classmethod
    def parse(
        cls,
        options: Mapping[str, Any],
        *,
        is_stream: bool,
        decoding_names: Collection[str] = (),
    ) -> Self:
        """Read options; one InvalidArgument tells everything that is wrong with them."""
        read = read_options(
            options, cls, ConsumerConfig, refused_client_settings=_REFUSED, others=decoding_names
        )
        values = read.values
        selection = _selection(read)
        start = _start(read, Edge.LATEST if is_stream else Edge.EARLIEST)
        end = _end(read)
        if is_stream:
            for name, option in _BATCH_ONLY.items():
                read.check(option, name not in values, "a stream has no end; it is for batches")
        else:
            _check_batch(read, start, end)
        _check_limits(read)
        delay_ms = _parsed(read, "maxTriggerDelay", parse_duration_ms, "max_trigger_delay")
        read.raise_faults()
        if "group_id" in values:
            _logger.warning(
                "kafka.group.id=%s has no effect: no group is joined", values["group_id"]
            )
        assert selection is not None
        return cls(
            **values,
            selection=selection,
            start=start,
            end=end,
            max_trigger_delay_ms=900_000 if delay_ms is None else delay_ms,
            client=read.client,
            decoding=read.others,
        )


def _selection(read: ReadOptions) -> Selection | None:
    values = read.values
    given = [
        option
        for option, name in zip(
            _SELECTIONS, ("assign", "subscribe", "subscribe_pattern"), strict=True
        )
        if name in values
    ]
    if len(given) != 1:
        what = f"not {' and '.join(given)}" if given else "none is given"
        read.faults.append(f"give one of {', '.join(_SELECTIONS)}: {what}")
        return None
    if "assign" in values:
        found = _parsed(read, "assign", parse_partitions, "assign")
        return None if found is None else Partitions(found)
    if "subscribe" in values:
        names = [each.strip() for each in values["subscribe"].split(",")]
        topics = tuple(dict.fromkeys(each for each in names if each))
        read.check("subscribe", bool(topics), "it names no topic")
        return Topics(topics)
    return _pattern(read, values["subscribe_pattern"].strip())


def _pattern(read: ReadOptions, pattern: str) -> TopicPattern:
    try:
        re.compile(pattern)
    except re.error as error:
        read.faults.append(f"subscribePattern={pattern!r}: no regular expression: {error}")
    read.check("subscribePattern", bool(pattern), "it is empty")
    return TopicPattern(pattern)


def _start(read: ReadOptions, default: Edge) -> Bound:
    values = read.values
    has_time = "starting_timestamp" in values or "starting_offsets_by_timestamp" in values
    read.check(
        "startingGroup",
        not (has_time and "starting_group" in values),
        "give a group or a time to begin at, not both",
    )
    if values.get("starting_timestamp") is not None:
        return AtTime(values["starting_timestamp"])
    times = _parsed(
        read, "startingOffsetsByTimestamp", parse_times, "starting_offsets_by_timestamp"
    )
    return times or _parsed(read, "startingOffsets", parse_bound, "starting_offsets") or default


def _end(read: ReadOptions) -> Bound:
    if read.values.get("ending_timestamp") is not None:
        return AtTime(read.values["ending_timestamp"])
    times = _parsed(read, "endingOffsetsByTimestamp", parse_times, "ending_offsets_by_timestamp")
    return times or _parsed(read, "endingOffsets", parse_bound, "ending_offsets") or Edge.LATEST


def _check_batch(read: ReadOptions, start: Bound, end: Bound) -> None:
    read.check(
        "startingOffsets",
        start is not Edge.LATEST,
        "a batch cannot begin at latest: nothing would be read",
    )
    read.check(
        "endingOffsets", end is not Edge.EARLIEST, "a batch cannot end at earliest: it is empty"
    )
    if isinstance(start, AtOffsets):
        is_fine = LATEST_OFFSET not in start.offsets.values()
        read.check("startingOffsets", is_fine, "a batch cannot begin at -1 (latest)")
    if isinstance(end, AtOffsets):
        is_fine = EARLIEST_OFFSET not in end.offsets.values()
        read.check("endingOffsets", is_fine, "a batch cannot end at -2 (earliest)")


def _check_limits(read: ReadOptions) -> None:
    least = read.values.get("min_offsets_per_trigger")
    most = read.values.get("max_offsets_per_trigger")
    if least is not None and most is not None:
        is_fine = least <= most
        read.check(
            "minOffsetsPerTrigger", is_fine, f"{least} is more than maxOffsetsPerTrigger={most}"
        )


def _parsed(read: ReadOptions, option: str, parse: Any, name: str) -> Any:
    """What an option means; None if it was not given or is a fault."""
    text = read.values.get(name)
    if text is None:
        return None
    try:
        return parse(text)
    except InvalidArgument as error:
        read.faults.append(f"{option}: {error}")
        return None
