"""Compressed records of a request: a little is unpacked at once, more on a worker, in order."""

from __future__ import annotations

from struct import pack_into
from typing import TYPE_CHECKING, Any

import pytest

from millstream.errors import InvalidRecord, NotLeaderOrFollower
from millstream.metadata.topics import NO_LEADER
from millstream.records import Compression, RecordBatchBuilder
from millstream.records.layout import LAST_OFFSET_DELTA_AT, RECORD_COUNT_AT
from millstream.storage.log.config import LogConfig
from millstream.storage.log.validator import INLINE_UNPACK_MAX
from tests.unit.replica.harness import World
from tests.unit.storage.batches import NOW_MS
from tests.unit.storage.client_batches import resealed

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.replica.append_service import AppendResult


def packed(value_bytes: int, codec: Compression = Compression.ZSTD) -> bytearray:
    builder = RecordBatchBuilder()
    builder.append(NOW_MS, b"k", bytes(value_bytes))
    return bytearray(builder.build(compression=codec))


LARGE = INLINE_UNPACK_MAX + 1


class Worker:
    """Does what it was given when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []

    def run(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.jobs.append((work, done))

    def do_one(self) -> None:
        work, done = self.jobs.pop(0)
        result: Any
        try:
            result = work()
        except Exception as error:
            result = error
        done(result)


class Produce:
    """One request, and what became of it."""

    def __init__(self, broker: World, *batches: bytearray | None) -> None:
        self.held: list[str] = []
        self.results: list[AppendResult] | None = None
        results = broker.manager.append(
            [("t", index, records) for index, records in enumerate(batches)],
            1,
            1000,
            self._done,
            hold=self._hold,
        )
        if results is not None:
            self._done(results)

    def _hold(self) -> Callable[[], None]:
        self.held.append("held")
        return lambda: self.held.append("released")

    def _done(self, results: list[AppendResult]) -> None:
        assert self.results is None
        self.results = results

    @property
    def errors(self) -> list[type[Exception] | None]:
        assert self.results is not None
        return [None if each.error is None else type(each.error) for each in self.results]


@pytest.fixture
def worker() -> Worker:
    return Worker()


@pytest.fixture
def broker(worker: Worker) -> World:
    broker = World(run_on_worker=worker.run)
    broker.create("t", 4)
    return broker


def end_offsets(broker: World) -> list[int]:
    return [broker.manager.partition("t", index).log.log_end_offset for index in range(4)]


@pytest.mark.parametrize("codec", Compression)
def test_a_little_is_unpacked_at_once(broker: World, worker: Worker, codec: Compression) -> None:
    request = Produce(broker, packed(1000, codec))

    assert request.errors == [None]
    assert request.held == []
    assert worker.jobs == []


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_what_unpacks_to_more_is_left_to_a_worker(
    broker: World, worker: Worker, codec: Compression
) -> None:
    request = Produce(broker, packed(LARGE, codec))
    assert request.held == ["held"]
    assert end_offsets(broker)[0] == 0

    worker.do_one()

    assert request.held == ["held", "released"]
    assert request.errors == [None]
    assert end_offsets(broker)[0] == 1


def test_the_batches_of_a_request_share_what_may_be_unpacked_at_once(
    broker: World, worker: Worker
) -> None:
    half = packed(INLINE_UNPACK_MAX // 2)

    request = Produce(broker, half, bytearray(half), bytearray(half))

    # All of them or none: a request is appended as a whole.
    assert end_offsets(broker) == [0, 0, 0, 0]
    worker.do_one()
    assert len(worker.jobs) == 1
    worker.do_one()
    assert request.errors == [None, None, None]
    assert end_offsets(broker) == [1, 1, 1, 0]


def test_requests_take_turns_on_the_worker(broker: World, worker: Worker) -> None:
    many = Produce(broker, packed(LARGE), packed(LARGE), packed(LARGE))
    one = Produce(broker, packed(LARGE))

    worker.do_one()
    worker.do_one()

    assert one.results is not None
    assert many.results is None


def test_what_cannot_be_read_fails_alone(broker: World, worker: Worker) -> None:
    poisoned = packed(LARGE)
    pack_into(">i", poisoned, RECORD_COUNT_AT, 2)
    pack_into(">i", poisoned, LAST_OFFSET_DELTA_AT, 1)

    request = Produce(broker, resealed(poisoned), packed(LARGE))
    worker.do_one()
    worker.do_one()

    assert request.errors == [InvalidRecord, None]
    assert end_offsets(broker) == [0, 1, 0, 0]


def test_a_leader_that_lost_its_partition_meanwhile_says_so(broker: World, worker: Worker) -> None:
    request = Produce(broker, packed(LARGE))

    broker.change(leader=NO_LEADER)
    worker.do_one()

    assert request.errors == [NotLeaderOrFollower]
    assert request.held == ["held", "released"]


def test_settings_that_changed_meanwhile_hold(broker: World, worker: Worker) -> None:
    builder = RecordBatchBuilder()
    builder.append(NOW_MS, None, bytes(LARGE))
    request = Produce(broker, bytearray(builder.build(compression=Compression.ZSTD)))

    broker.configure("t", LogConfig(cleanup_policy=("compact",)))
    worker.do_one()

    assert request.errors == [InvalidRecord]
