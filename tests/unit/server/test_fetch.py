"""Fetch: sessions, waiting, limits and errors, whichever way the request is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.errors import (
    FencedLeaderEpoch,
    FetchSessionIdNotFound,
    InvalidFetchSessionEpoch,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from millstream.protocol.messages.fetch import ForgottenTopic
from millstream.storage.disk import DiskFileSystem
from millstream.storage.filesystem import FileSlice
from millstream.types import Uuid
from tests.unit.server.harness import Broker
from tests.unit.storage.batches import batch_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VERSIONS = range(4, 19)


@pytest.fixture
def broker() -> Broker:
    made = Broker()
    made.create("orders", 3)
    return made


def only(response: Any) -> Any:
    """The partition of an answer about one."""
    (topic,) = response.responses
    (partition,) = topic.partitions
    return partition


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("isolation_level", [0, 1])
def test_records_come_back_in_every_version(
    broker: Broker, version: int, isolation_level: int
) -> None:
    broker.produce()
    broker.produce()

    answer = only(broker.fetch(0, version=version, isolation_level=isolation_level))

    assert answer.error_code == 0
    assert answer.high_watermark == 2
    assert answer.last_stable_offset == 2
    assert len(answer.records) == 2 * len(batch_bytes())
    assert answer.aborted_transactions == (None if isolation_level == 0 else [])


@pytest.mark.parametrize("version", VERSIONS)
def test_several_partitions_of_several_topics(broker: Broker, version: int) -> None:
    broker.create("other")
    broker.produce(partition=0)
    broker.produce(partition=2)
    broker.produce(topic="other")
    request = broker.fetch_request(0, 0, 0)
    request.topics += broker.fetch_request(0, topic="other").topics

    first, second = broker.ask(request, version).responses

    assert [len(each.records) > 0 for each in first.partitions] == [True, False, True]
    assert [len(each.records) > 0 for each in second.partitions] == [True]


@pytest.mark.parametrize("version", [11, 18])
def test_records_stay_in_their_file(broker: Broker, version: int) -> None:
    broker.produce()

    parts = broker.call(broker.fetch_request(0), version).outcome

    assert sum(isinstance(part, FileSlice) for part in parts) == 1


@pytest.mark.parametrize("version", [4, 7, 12, 18])
@pytest.mark.parametrize("offset", [-1, 2])
def test_offsets_out_of_range(broker: Broker, version: int, offset: int) -> None:
    broker.produce()

    answer = only(broker.fetch(offset, version=version))

    assert answer.error_code == OffsetOutOfRange.code
    assert answer.records == b""


def test_unknown_topics_by_name_and_by_id(broker: Broker) -> None:
    by_id = broker.fetch_request(0)
    by_id.topics[0].topic_id = Uuid(b"0123456789abcdef")

    assert only(broker.ask(by_id, 13)).error_code == UnknownTopicId.code
    named = only(broker.fetch(0, topic="nobody", version=12))
    assert named.error_code == UnknownTopicOrPartition.code


def test_a_leader_elsewhere_is_named() -> None:
    broker = Broker(brokers=(1, 2))
    broker.controller.create("orders", [[2]])
    broker.publish()

    response = broker.fetch(0, version=16)

    answer = only(response)
    assert answer.error_code == NotLeaderOrFollower.code
    assert answer.current_leader.leader_id == 2
    assert [(each.node_id, each.port) for each in response.node_endpoints] == [(2, 9092)]


@pytest.mark.parametrize("version", [9, 12, 18])
def test_an_old_leader_epoch_is_fenced(broker: Broker, version: int) -> None:
    broker.controller.force("orders", leader=1)
    broker.publish()
    request = broker.fetch_request(0)
    request.topics[0].partitions[0].current_leader_epoch = -5

    assert only(broker.ask(request, version)).error_code == FencedLeaderEpoch.code


class TestSessions:
    """KIP-227, over the wire."""

    @pytest.mark.parametrize("version", [7, 9, 11, 12, 15, 18])
    def test_an_incremental_fetch_names_only_what_changed(
        self, broker: Broker, version: int
    ) -> None:
        broker.produce()
        opened = broker.fetch(0, 0, version=version, session_id=0, session_epoch=0)
        session = {"session_id": opened.session_id, "version": version}

        moved = broker.fetch(1, session_epoch=1, **session)
        quiet = broker.fetch(session_epoch=2, **session)
        broker.produce(partition=1)
        news = broker.fetch(session_epoch=3, **session)

        assert opened.session_id > 0
        assert len(opened.responses[0].partitions) == 2
        assert moved.responses == []
        assert quiet.responses == []
        assert quiet.session_id == opened.session_id
        assert [part.partition_index for part in news.responses[0].partitions] == [1]

    def test_a_session_nobody_has(self, broker: Broker) -> None:
        answer = broker.fetch(session_id=123, session_epoch=1)

        assert answer.error_code == FetchSessionIdNotFound.code
        assert answer.session_id == 0

    def test_an_epoch_that_is_not_the_next(self, broker: Broker) -> None:
        opened = broker.fetch(0, session_id=0, session_epoch=0)

        answer = broker.fetch(session_id=opened.session_id, session_epoch=7)

        assert answer.error_code == InvalidFetchSessionEpoch.code

    @pytest.mark.parametrize("version", [12, 13])
    def test_forgotten_partitions_are_not_answered(self, broker: Broker, version: int) -> None:
        opened = broker.fetch(0, 0, version=version, session_id=0, session_epoch=0)
        broker.produce(partition=1)
        forgotten = ForgottenTopic(
            topic="orders",
            topic_id=broker.metadata.topic_id("orders") or Uuid.ZERO,
            partitions=[1],
        )

        answer = broker.fetch(
            version=version,
            session_id=opened.session_id,
            session_epoch=1,
            forgotten_topics_data=[forgotten],
        )

        assert answer.responses == []


class TestWaiting:
    """Long polling."""

    @pytest.mark.parametrize("version", [4, 11, 12, 18])
    def test_a_fetch_waits_for_records(self, broker: Broker, version: int) -> None:
        waiting = broker.call(broker.fetch_request(0, max_wait_ms=500), version)
        assert waiting.is_pending

        broker.produce()
        broker.settle()

        assert len(only(waiting.response).records) == len(batch_bytes())

    def test_a_fetch_waits_no_longer_than_it_said(self, broker: Broker) -> None:
        waiting = broker.call(broker.fetch_request(0, max_wait_ms=500))

        broker.pass_time(499)
        assert waiting.is_pending
        broker.pass_time(1)

        assert only(waiting.response).records == b""


def test_a_rack_without_replicas_in_it_is_served_by_the_leader(broker: Broker) -> None:
    broker.produce()

    answer = only(broker.fetch(0, rack_id="a"))

    assert answer.preferred_read_replica == -1
    assert len(answer.records) == len(batch_bytes())


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[Broker]:
    """A broker whose logs are real files."""
    made = Broker(filesystem=DiskFileSystem(), directories=(str(tmp_path),))
    made.create("orders", 2)
    yield made
    made.logs.abandon()


def in_session(broker: Broker, epoch: int, *offsets: int, **changes: Any) -> Any:
    """The next request of the only session, which the first one begins; what the handler gives."""
    sessions = broker.replicas.fetch_sessions.by_id
    session_id = next(iter(sessions), 0)
    said: dict[str, Any] = {"max_wait_ms": 100} | changes
    request = broker.fetch_request(*offsets, session_id=session_id, session_epoch=epoch, **said)
    return broker.call(request, 18)


def test_a_session_that_follows_a_partition_gets_what_comes(on_disk: Broker) -> None:
    on_disk.produce()
    in_session(on_disk, 0, 0)
    on_disk.produce()

    named = in_session(on_disk, 1, 1)
    again = in_session(on_disk, 2)

    assert only(named.response).records == only(again.response).records != b""


def test_a_long_poll_is_answered_when_records_come(on_disk: Broker) -> None:
    in_session(on_disk, 0, 0, max_wait_ms=0)
    waiting = in_session(on_disk, 1)
    assert waiting.is_pending

    on_disk.produce()
    on_disk.settle()

    assert only(waiting.response).high_watermark == 1


def test_many_records_stay_in_their_file_in_a_session_too(on_disk: Broker) -> None:
    in_session(on_disk, 0, 0, max_wait_ms=0)
    on_disk.produce(batch_bytes(value_bytes=200_000))

    head, records, tail = in_session(on_disk, 1).outcome

    assert isinstance(records, FileSlice)
    assert records.length > 200_000
    assert isinstance(head, bytes)
    assert tail == bytes(3)


def test_a_file_that_ends_too_early_is_left_to_the_network(on_disk: Broker) -> None:
    on_disk.produce()
    in_session(on_disk, 0, 0)
    segment = on_disk.partition().log.segments.active
    segment.open_file().truncate(segment.size - 1)

    _, records, _ = in_session(on_disk, 1).outcome

    assert len(records.read()) < records.length
