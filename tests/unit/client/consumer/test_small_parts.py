"""Settings, starting points, bounds, listeners, interceptors, names, Arrow batches."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from millstream.client.config import keyword_names, settings_from_dotted, settings_from_kwargs
from millstream.client.consumer.arrow import ArrowBatch, imported
from millstream.client.consumer.config import ConsumerConfig, ConsumerSettings
from millstream.client.consumer.interceptors import ConsumerInterceptor, ConsumerInterceptors
from millstream.client.consumer.listeners import RebalanceListener, listener_method
from millstream.client.consumer.starting_point import (
    EARLIEST,
    LATEST,
    BeforeNow,
    parse_reset,
)
from millstream.errors import InvalidArgument
from millstream.records.kernel import ArrowRecordsBuilder, BatchWriter, ConsumerRecord
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

P0 = TopicPartition("orders", 0)
RECORD = ConsumerRecord("orders", 0, 0, 0, None, b"v")


def config(**settings: Any) -> ConsumerConfig:
    return settings_from_kwargs(ConsumerConfig, {"bootstrap_servers": "b:9092", **settings})


def test_keyword_arguments_and_settings_are_the_same() -> None:
    own_parameters = {"bootstrap_servers", "key_deserializer", "value_deserializer"}
    declared = set(keyword_names(ConsumerConfig)) - own_parameters

    assert set(ConsumerSettings.__annotations__) == declared


def test_defaults_are_kafka_s() -> None:
    made = config()

    assert (made.fetch_max_bytes, made.max_partition_fetch_bytes) == (52_428_800, 1_048_576)
    assert (made.max_poll_records, made.fetch_max_wait_ms) == (500, 500)
    assert made.reset == LATEST
    assert not made.reads_committed


def test_kafka_s_names_are_read_from_text() -> None:
    made = settings_from_dotted(
        ConsumerConfig,
        {
            "bootstrap.servers": "b:9092",
            "isolation.level": "read_committed",
            "auto.offset.reset": "by_duration:PT2H",
            "value.deserializer": "json",
        },
    )

    assert made.reads_committed
    assert made.reset == BeforeNow(7_200_000)
    assert made.value_deserializer == "json"


def test_every_fault_is_in_one_error() -> None:
    with pytest.raises(InvalidArgument) as raised:
        config(auto_offset_reset="erliest", max_poll_records=0, isolation_level="dirty")

    for name in ("auto_offset_reset", "max_poll_records", "isolation_level"):
        assert name in str(raised.value)


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("none", None),
        ("by_duration:P1D", BeforeNow(86_400_000)),
    ],
)
def test_reset_policies(text: str, point: object) -> None:
    assert parse_reset(text) == point


@pytest.mark.parametrize("text", ["", "oldest", "by_duration:", "by_duration:1h"])
def test_policies_that_do_not_exist(text: str) -> None:
    with pytest.raises(InvalidArgument, match="auto_offset_reset"):
        parse_reset(text)


def test_who_leaves_the_assigning_to_the_broker_names_no_assignor() -> None:
    with pytest.raises(InvalidArgument, match="set group_remote_assignor"):
        config(group_protocol="consumer", partition_assignment_strategy=["range"])

    assert config(group_protocol="consumer").group_protocol == "consumer"


def test_a_classic_group_does_not_leave_the_assigning_to_the_broker() -> None:
    with pytest.raises(InvalidArgument, match="set partition_assignment_strategy"):
        config(group_protocol="classic", group_remote_assignor="uniform")


def test_settings_of_classic_members_mean_nothing_in_the_consumer_protocol() -> None:
    given = config(session_timeout=10.0, heartbeat_interval=1.0)

    assert given.without_effect("classic") == []
    assert given.without_effect("consumer") == [
        "session_timeout: the group's own consumer.session.timeout.ms counts",
        "heartbeat_interval: the group's own consumer.heartbeat.interval.ms counts",
    ]
    assert config().without_effect("consumer") == []
    assert config(group_remote_assignor="range").without_effect("classic") == [
        "group_remote_assignor: in a classic group a member assigns"
    ]


def test_membership_has_the_names_of_the_wire() -> None:
    made = config(
        group_id="billing",
        namespace="staging",
        partition_assignment_strategy="range,sticky",
        session_timeout=10.0,
    )

    assert made.wire_group_id == "staging.billing"
    assert [each.name for each in made.assignors] == ["range", "sticky"]
    assert made.session_timeout_ms == 10_000


# ---- listeners ----


def test_who_knows_nothing_of_losses_hears_of_a_revocation() -> None:
    heard: list[Sequence[TopicPartition]] = []

    class Old:
        def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
            heard.append(partitions)

    class New(RebalanceListener):
        def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
            heard.append(partitions)

    for listener in (Old(), New()):
        listener_method(listener, "on_partitions_lost")([P0])
    assert heard == [[P0], [P0]]
    assert listener_method(Old(), "on_partitions_assigned") is None
    assert RebalanceListener().on_partitions_assigned([P0]) is None


# ---- interceptors ----


class Doubling(ConsumerInterceptor):
    """Gives everything twice."""

    closed = 0

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        return records * 2

    def close(self) -> None:
        Doubling.closed += 1


class Failing:
    """Fails at everything."""

    def on_consume(self, records: object) -> Any:
        raise LookupError

    def on_commit(self, offsets: object) -> None:
        raise LookupError

    def close(self) -> None:
        raise LookupError


def test_interceptors_are_a_chain_and_failures_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    Doubling.closed = 0
    chain = ConsumerInterceptors([Doubling, Failing(), Doubling()])

    with caplog.at_level(logging.ERROR):
        assert chain.on_consume([RECORD]) == [RECORD] * 4
        chain.on_commit({})
        chain.close()

    assert Doubling.closed == 2
    assert [each.getMessage().split(" failed in ")[1] for each in caplog.records] == [
        "on_consume and is passed over",
        "on_commit",
        "close",
    ]
    assert bool(chain)
    assert not ConsumerInterceptors([])
    assert ConsumerInterceptor().on_consume([RECORD]) == [RECORD]


@pytest.mark.parametrize("name", ["nowhere", "nowhere.Nobody", "logging:Nobody"])
def test_an_interceptor_that_cannot_be_imported(name: str) -> None:
    with pytest.raises(InvalidArgument, match=r"interceptor .*cannot be imported"):
        ConsumerInterceptors([name])


def test_an_interceptor_by_its_name() -> None:
    name = "millstream.client.consumer.interceptors:ConsumerInterceptor"

    assert ConsumerInterceptors([name]).on_consume([RECORD]) == [RECORD]
    assert ConsumerInterceptors(f"{name}, {name}").on_consume([RECORD]) == [RECORD]


def test_an_interceptor_alone_needs_no_list() -> None:
    assert ConsumerInterceptors(Doubling()).on_consume([RECORD]) == [RECORD] * 2
    with pytest.raises(InvalidArgument, match="neither on_consume nor on_commit"):
        ConsumerInterceptors(object())


@pytest.mark.parametrize("given", [None, 7])
def test_an_interceptor_that_gives_no_records_is_passed_over(
    given: object, caplog: pytest.LogCaptureFixture
) -> None:
    class Forgetful:
        def on_consume(self, records: object) -> object:
            return given

    chain = ConsumerInterceptors([Forgetful(), Doubling()])

    assert chain.on_consume([RECORD]) == [RECORD] * 2
    assert f"on_consume gave {given} instead of records" in caplog.text


def test_an_interceptor_may_give_any_iterable() -> None:
    class Lazy:
        def on_consume(self, records: list[Any]) -> Any:
            return (each for each in records)

    assert ConsumerInterceptors(Lazy()).on_consume([RECORD]) == [RECORD]


# ---- Arrow ----


def test_an_arrow_batch_is_what_arrow_takes() -> None:
    pa = imported("pyarrow")
    batch = ArrowBatch("orders", ArrowRecordsBuilder().finish())

    assert pa.table(batch).num_rows == 0
    assert pa.record_batch(batch).num_columns == 6
    assert pa.schema(batch).names[0] == "key"
    assert repr(batch) == "ArrowBatch(topic='orders', rows=0)"


def test_a_data_frame_has_bytes_and_headers() -> None:
    writer = BatchWriter()
    writer.append(1_000, b"k", b"v", [("h", b"1")])
    writer.append(2_000, None, None)
    builder = ArrowRecordsBuilder()
    builder.append(bytes(writer.body()), 2, 7, 1_000)

    batch = ArrowBatch("orders", builder.finish())
    backed, frame = batch.to_pandas(), batch.to_pandas(dtype_backend="numpy")

    assert str(backed["value"].dtype) == "binary[pyarrow]"
    assert backed["value"][0] == b"v"
    assert backed["value"].isna().tolist() == [False, True]
    assert backed["value"].astype("string[pyarrow]")[0] == "v"
    assert frame["value"].str.decode("utf-8")[0] == "v"
    assert frame["key"].tolist() == [b"k", None]
    assert frame["value"].tolist() == [b"v", None]
    assert [list(each) for each in frame["headers"]] == [[{"key": "h", "value": b"1"}], []]
    assert frame["offset"].tolist() == [7, 8]
    assert str(frame["timestamp"][1]) == "1970-01-01 00:00:02+00:00"


def test_a_data_frame_of_something_else_is_refused() -> None:
    batch = ArrowBatch("orders", ArrowRecordsBuilder().finish())

    with pytest.raises(InvalidArgument, match="dtype_backend='numpy_nullable': must be one of"):
        batch.to_pandas(dtype_backend="numpy_nullable")  # type: ignore[arg-type]  # On purpose.


def test_a_package_that_is_not_installed_is_named() -> None:
    with pytest.raises(ImportError, match="pip install nothing_of_the_kind"):
        imported("nothing_of_the_kind")


def test_times_are_aware_datetimes_or_milliseconds() -> None:
    from millstream.client.arguments import to_timestamp

    assert to_timestamp(datetime.fromtimestamp(1.5, UTC)) == 1500
    assert to_timestamp(1500) == 1500
