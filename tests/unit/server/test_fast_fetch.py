"""Which fetches the fast path takes, and that it finds its records whatever happens to the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream import _accel
from millstream.protocol.frame import encode_request
from millstream.protocol.messages.fetch import ForgottenTopic, ReplicaState
from millstream.replica.partition_reader import read_partition
from millstream.storage.disk import DiskFileSystem
from millstream.storage.log.config import LogConfig
from millstream.storage.log.log_results import FetchIsolation
from millstream.storage.log.segment import LogSegment
from tests.unit.server.harness import Broker
from tests.unit.storage.batches import NOW_MS, batch_bytes, marker_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from millstream.protocol.messages import FetchRequest

pytestmark = pytest.mark.skipif(
    not _accel.COMPILED, reason="the compiled kernel is not built (make build)"
)

VERSION = 18
SMALL_SEGMENTS = {"internal_segment_bytes": "1000", "index_interval_bytes": "150"}


class Session:
    """A consumer of one partition in a session with a broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        broker.call(broker.fetch_request(0, session_epoch=0, partition_max_bytes=1), VERSION)
        (self.state,) = broker.replicas.fetch_sessions.by_id.values()

    def request(self, *offsets: int, **changes: Any) -> FetchRequest:
        """The next request of the session."""
        about = {"session_id": self.state.id, "session_epoch": self.state.epoch} | changes
        return self.broker.fetch_request(*offsets, **about)

    def offer(self, request: FetchRequest, version: int = VERSION) -> Any:
        """What the fast path answers; None if it declines."""
        fast_path: Any = self.broker.replicas.fast_path
        return fast_path.reader.answer(encode_request(request, version, 77, "tests"))

    def records(self, offset: int, **changes: Any) -> bytes | None:
        """What the fast path finds at an offset."""
        parts = self.offer(self.request(offset, **changes))
        return None if parts is None else bytes(parts[1].read())


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker with thirty records in several segments on disk, whose files are open."""
    made = Broker(filesystem=DiskFileSystem(), directories=(str(tmp_path),))
    made.create("orders", 2, **SMALL_SEGMENTS)
    fill(made, 30)
    yield made
    made.logs.abandon()


@pytest.fixture
def session(broker: Broker) -> Session:
    """Of a consumer that has begun to read."""
    return Session(broker)


def log_of(broker: Broker) -> Any:
    return broker.partition().log


def fill(broker: Broker, count: int, **how: Any) -> None:
    """Append so many batches of a record each."""
    for _ in range(count):
        broker.produce(batch_bytes(**how))


def read_in_full(log: Any, offset: int, bytes_max: int) -> bytes:
    """What the log gives a consumer; its files are open then."""
    found = log.read(offset, bytes_max, FetchIsolation.HIGH_WATERMARK)
    return bytes(found.records.read())


def compare(session: Session) -> int:
    """Read at every offset by both paths; how many reads the fast one took."""
    log, taken = log_of(session.broker), 0
    for offset in range(log.log_start_offset, log.high_watermark):
        for bytes_max in (1, 150, 100_000):
            expected = read_in_full(log, offset, bytes_max)
            found = session.records(offset, partition_max_bytes=bytes_max)
            if found is not None:
                assert found == expected
                taken += 1
    return taken


def roll(log: Any) -> None:
    """A consumer that waited at the end goes on in another segment."""
    log.read(log.log_end_offset, 1000)
    log.roll(NOW_MS)


def truncate(log: Any) -> None:
    """Others take the place of what was cut."""
    log.truncate_to(log.log_end_offset - 5, NOW_MS)


def apply_retention(log: Any) -> None:
    """The oldest segments go."""
    log.update_config(LogConfig(internal_segment_bytes=1000, retention_bytes=700))
    assert log.delete_old_segments(NOW_MS)


def delete_records(log: Any) -> None:
    """The log begins within a segment."""
    log.raise_log_start_offset(log.log_start_offset + 7)


def compact(log: Any) -> None:
    """The first segment is written anew, with only its last batch."""
    first, second = list(log.segments)[:2]
    *_, last = first.batches()
    cleaned = LogSegment.create(
        log._local.filesystem,
        log.directory,
        first.base_offset,
        log.config,
        NOW_MS,
        suffix=".cleaned",
    )
    cleaned.append(last.batch.view, last.batch.last_offset, last.batch.max_timestamp)
    assert cleaned.size < first.size
    log.replace_segments(cleaned, [first])
    assert second in list(log.segments)


def release(log: Any) -> None:
    """An idle log gives back its descriptors."""
    log.release()


@pytest.mark.parametrize(
    "change", [roll, truncate, apply_retention, delete_records, compact, release]
)
def test_records_are_found_where_they_are_now(
    session: Session, change: Callable[[Any], None]
) -> None:
    assert compare(session) == 90

    change(log_of(session.broker))
    fill(session.broker, 4, value_bytes=33)

    assert compare(session) > 10


def test_nothing_above_the_watermark_is_given(session: Session) -> None:
    log = log_of(session.broker)
    end = log.log_end_offset
    log.update_high_watermark(end - 4)

    assert session.records(end - 4) is None
    assert session.records(end - 6) == read_in_full(log, end - 6, 1 << 20)
    assert compare(session) == 3 * (end - 4)


@pytest.mark.parametrize("is_abort", [False, True])
def test_undecided_and_aborted_records_are_left_to_the_full_path(
    session: Session, is_abort: bool
) -> None:
    log = log_of(session.broker)
    end = log.log_end_offset
    transactional = batch_bytes(end, pid=5, epoch=0, sequence=0, is_transactional=True)
    log.append_as_follower(transactional, 0, NOW_MS)
    log.update_high_watermark(log.log_end_offset)
    assert session.records(end, isolation_level=1) is None
    assert session.records(end) == transactional
    assert session.records(end - 1, isolation_level=1) == read_in_full(log, end - 1, 1)

    marker = marker_batch(log.log_end_offset, pid=5, is_abort=is_abort)
    log.append_as_follower(bytes(marker.view), 0, NOW_MS)
    log.update_high_watermark(log.log_end_offset)

    assert (session.records(end, isolation_level=1) is None) == is_abort
    assert session.records(end) == read_in_full(log, end, 1 << 20)


def test_files_that_are_not_open_are_left_to_the_full_path(session: Session) -> None:
    log_of(session.broker).release()

    assert session.records(3) is None


def test_a_closed_log_gives_nothing(session: Session) -> None:
    log_of(session.broker).close()

    assert session.records(3) is None


@pytest.mark.parametrize("version", range(13, 19))
def test_every_version_with_topic_ids_is_taken(session: Session, version: int) -> None:
    assert session.offer(session.request(3), version) is not None
    nothing_named = session.request()
    assert session.offer(nothing_named, version) is not None


@pytest.mark.parametrize(
    "change",
    [
        {"session_epoch": 9},
        {"session_epoch": 0},
        {"session_epoch": -1},
        {"session_id": 0},
        {"isolation_level": 2},
        {"rack_id": "a"},
        {"replica_state": ReplicaState(replica_id=2)},
        {"forgotten_topics_data": [ForgottenTopic(topic="o", partitions=[0])]},
        {"min_bytes": 1 << 20},
        {"partition_max_bytes": 10, "min_bytes": 20},
    ],
)
def test_uncommon_fetches_are_left_to_the_full_path(
    session: Session, change: dict[str, Any]
) -> None:
    request = session.request(3)
    for name, value in change.items():
        if name == "partition_max_bytes":
            request.topics[0].partitions[0].partition_max_bytes = value
        else:
            setattr(request, name, value)
    epoch, rank = session.state.epoch, session.state.last_rank

    assert session.offer(request) is None
    assert (session.state.epoch, session.state.last_rank) == (epoch, rank)


@pytest.mark.parametrize("offset", [-1, 30, 10_000])
def test_an_offset_without_records_is_left_to_the_full_path(session: Session, offset: int) -> None:
    assert session.records(offset) is None


def test_a_second_partition_with_news_is_left_to_the_full_path(session: Session) -> None:
    session.broker.call(session.request(0, 0, partition_max_bytes=1), VERSION)
    session.broker.produce(batch_bytes(), partition=1)

    assert session.offer(session.request(3)) is None


@pytest.fixture
def full_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets that the full path reads at."""
    offsets: list[int] = []

    def read(partition: Any, asked: Any, *limits: Any, **how: Any) -> Any:
        offsets.append(asked.fetch_offset)
        return read_partition(partition, asked, *limits, **how)

    monkeypatch.setattr("millstream.replica.fetch_service.read_partition", read)
    return offsets


def only(response: Any) -> Any:
    """The one partition of a response."""
    (partition,) = (each for topic in response.responses for each in topic.partitions)
    return partition


@pytest.mark.parametrize("offsets", [(30,), ()])
@pytest.mark.parametrize("isolation_level", [0, 1])
def test_a_fetch_waits_and_is_answered_without_the_full_path(
    session: Session, full_reads: list[int], offsets: tuple[int, ...], isolation_level: int
) -> None:
    broker = session.broker
    broker.call(session.request(30), VERSION)
    full_reads.clear()
    about = {"max_wait_ms": 500, "isolation_level": isolation_level}
    waiting = broker.call(session.request(*offsets, **about), VERSION)
    assert waiting.is_pending

    broker.produce(batch_bytes())
    broker.settle()

    assert only(waiting.response).records == read_in_full(log_of(broker), 30, 1 << 20)
    assert full_reads == []


@pytest.mark.parametrize(
    ("offset", "changes"),
    [(30, {"min_bytes": 2}), (30, {"min_bytes": 0}), (30, {"max_wait_ms": 0}), (31, {})],
)
def test_only_the_most_common_wait_is_begun_without_the_full_path(
    session: Session, full_reads: list[int], offset: int, changes: dict[str, int]
) -> None:
    session.broker.call(session.request(offset, **({"max_wait_ms": 500} | changes)), VERSION)

    assert full_reads == [offset]


def test_what_the_fast_path_declines_of_a_fetch_that_waited_is_read_in_full(
    session: Session, full_reads: list[int]
) -> None:
    broker = session.broker
    waiting = broker.call(session.request(30, 0, max_wait_ms=500), VERSION)
    assert waiting.is_pending
    full_reads.clear()

    broker.produce(batch_bytes())
    broker.produce(batch_bytes(), partition=1)
    broker.settle()

    assert sorted(full_reads) == [0, 30]
    (topic,) = waiting.response.responses
    assert [len(each.records) for each in topic.partitions] == [len(batch_bytes())] * 2


def test_a_fetch_that_waited_in_vain_is_answered_in_time(
    session: Session, full_reads: list[int]
) -> None:
    waiting = session.broker.call(session.request(30, max_wait_ms=500), VERSION)
    assert full_reads == []

    session.broker.pass_time(500)

    assert waiting.response.responses == []
    assert full_reads == [30]
    assert not session.state.changed


def test_a_second_wait_of_a_session_is_begun_by_the_full_path(
    session: Session, full_reads: list[int]
) -> None:
    session.broker.call(session.request(30, max_wait_ms=500), VERSION)
    assert full_reads == []

    session.broker.call(session.request(max_wait_ms=500), VERSION)

    assert full_reads == [30]


def test_a_fetch_that_waited_while_its_session_went_on_is_told_so(session: Session) -> None:
    broker = session.broker
    broker.call(session.request(30), VERSION)
    waiting = broker.call(session.request(max_wait_ms=500), VERSION)
    other = broker.call(session.request(max_wait_ms=500), VERSION)

    broker.produce(batch_bytes())
    broker.settle()

    assert waiting.response.error_code == 71  # INVALID_FETCH_SESSION_EPOCH
    assert other.response.error_code == 0
