"""Options of a read: names of Spark's Kafka connector, and every fault in one error."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.errors import InvalidArgument
from millstream.spark.option_reading import is_true, parse_duration_ms
from millstream.spark.source.offsets import AtOffsets, AtTime, AtTimes, Edge
from millstream.spark.source.options import Partitions, SourceOptions, TopicPattern, Topics
from millstream.types import TopicPartition

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
A0 = TopicPartition("orders", 0)


def parse(*, is_stream: bool = False, **options: Any) -> SourceOptions:
    given = {name.replace("__", "."): value for name, value in options.items()}
    return SourceOptions.parse({**BASE, **given}, is_stream=is_stream)


def faults_of(options: dict[str, Any], *, is_stream: bool = False) -> str:
    with pytest.raises(InvalidArgument) as caught:
        SourceOptions.parse(options, is_stream=is_stream)
    return str(caught.value)


def test_a_batch_is_from_the_first_to_the_last_and_a_stream_from_now_on() -> None:
    assert parse().start is Edge.EARLIEST
    assert parse().end is Edge.LATEST
    assert parse(is_stream=True).start is Edge.LATEST


def test_names_are_compared_without_regard_to_case() -> None:
    options = parse(FAILONDATALOSS="false", minpartitions="7", IncludeHeaders=True)

    assert not options.fail_on_data_loss
    assert options.min_partitions == 7
    assert options.include_headers


def test_what_is_read_is_topics_a_pattern_or_partitions() -> None:
    server = {"kafka.bootstrap.servers": "localhost:9092"}

    def selected(**how: str) -> object:
        return SourceOptions.parse({**server, **how}, is_stream=False).selection

    assert selected(subscribe=" b, a ,,b") == Topics(("b", "a"))
    assert selected(subscribePattern="or.*") == TopicPattern("or.*")
    assert selected(assign='{"orders": [0]}') == Partitions((A0,))


def test_a_time_goes_before_times_and_those_before_offsets() -> None:
    offsets = '{"orders": {"0": 5}}'

    assert parse(startingOffsets=offsets).start == AtOffsets({A0: 5})
    both = parse(startingOffsets=offsets, startingOffsetsByTimestamp='{"orders": {"0": 9}}')
    assert both.start == AtTimes({A0: 9})
    assert parse(startingOffsets=offsets, startingTimestamp="0").start == AtTime(0)
    assert parse(endingOffsets=offsets, endingTimestamp="8").end == AtTime(8)
    assert parse(endingOffsetsByTimestamp='{"orders": {"0": 9}}').end == AtTimes({A0: 9})


def test_client_settings_lose_their_prefix_and_a_group_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = parse(kafka__isolation__level="read_committed", kafka__group__id="g")

    assert options.client == {
        "bootstrap.servers": "localhost:9092",
        "isolation.level": "read_committed",
    }
    assert "kafka.group.id=g has no effect: no group is joined" in caplog.text


@pytest.mark.parametrize("name", ["instance.id", "protocol", "remote.assignor"])
def test_what_a_member_of_a_group_would_be_is_refused(name: str) -> None:
    options = {
        "kafka.bootstrap.servers": "x:1",
        "subscribe": "a",
        f"kafka.group.{name}": "consumer",
    }

    assert "reading joins no group" in faults_of(options)


def test_all_faults_are_told_at_once_each_with_what_was_probably_meant() -> None:
    told = faults_of(
        {
            "kafka.bootstrap.server": "x:1",
            "subscribes": "orders",
            "minPartitions": "0",
            "startingOffset": "earliest",
            "kafka.auto.offset.reset": "latest",
            "kafka.isolation.level": "read_all",
            "maxTriggerDelay": "soon",
            "assign": "{}",
            "subscribe": "a",
        }
    )

    assert "did you mean kafka.bootstrap.servers?" in told
    assert "kafka.bootstrap.servers: missing" in told
    assert "did you mean subscribe?" in told
    assert "minPartitions='0': must be" in told
    assert "did you mean startingOffsets?" in told
    assert "startingOffsets says where a query begins" in told
    assert "kafka.isolation.level='read_all': must be" in told
    assert "maxTriggerDelay: 'soon' is no duration" in told
    assert "give one of assign, subscribe, subscribePattern: not assign and subscribe" in told


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"startingOffsets": "latest"}, "a batch cannot begin at latest"),
        ({"endingOffsets": "earliest"}, "a batch cannot end at earliest"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "cannot begin at -1"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "cannot end at -2"),
        ({"startingGroup": "g", "startingTimestamp": "1"}, "a group or a time"),
        ({"subscribe": " , "}, "it names no topic"),
        ({"minPartitions": "two"}, "must be a whole number"),
        ({"assign": "[]", "subscribe": None}, "assign: it is no JSON object"),
        ({"subscribePattern": "(", "subscribe": None}, "no regular expression"),
        ({"subscribePattern": " ", "subscribe": None}, "it is empty"),
        ({"subscribe": None}, "none is given"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "5 is more than"),
        ({"kafka.nothing.like.it": "1"}, "kafka.nothing.like.it: there is no such option"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], problem: str) -> None:
    assert problem in faults_of({**BASE, **options})


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    value = {"endingOffsets": "latest", "endingTimestamp": "1"}.get(name, "{}")

    assert f"{name}: a stream has no end" in faults_of({**BASE, name: value}, is_stream=True)


def test_options_of_decoding_are_passed_on_by_their_proper_names() -> None:
    given = {**BASE, "VALUEFORMAT": "json"}

    options = SourceOptions.parse(given, is_stream=True, decoding_names=["valueFormat"])

    assert options.decoding == {"valueFormat": "json"}


@pytest.mark.parametrize(
    ("text", "ms"), [("250", 250), ("5ms", 5), ("2 s", 2000), ("15m", 900_000), ("1h", 3_600_000)]
)
def test_durations_are_written_as_spark_writes_them(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms
    assert parse(maxTriggerDelay=text).max_trigger_delay_ms == ms


def test_an_option_is_true_in_any_case() -> None:
    assert is_true({"includeheaders": "TRUE"}, "includeHeaders")
    assert is_true({"includeHeaders": True}, "includeHeaders")
    assert not is_true({"includeHeaders": "no"}, "includeHeaders")
    assert not is_true({}, "includeHeaders")
