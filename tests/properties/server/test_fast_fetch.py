"""Whatever has happened, the fast path answers a fetch as the full path does, byte for byte."""

from __future__ import annotations

import shutil
import tempfile
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from millstream import _accel
from millstream.protocol.frame import encode_request
from millstream.protocol.messages import DeleteRecordsRequest, DeleteTopicsRequest
from millstream.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsTopic,
)
from millstream.protocol.messages.delete_topics import DeleteTopicState
from millstream.storage.disk import DiskFileSystem
from tests.unit.server.fakes import Call
from tests.unit.server.harness import Broker, frame_request
from tests.unit.storage.batches import NOW_MS, batch_bytes, marker_batch

if TYPE_CHECKING:
    from millstream.network.server.request import Response
    from millstream.protocol.messages import FetchRequest

pytestmark = pytest.mark.skipif(
    not _accel.COMPILED, reason="the compiled kernel is not built (make build)"
)

PARTITIONS = 2
INDEX = st.integers(0, PARTITIONS - 1)
OFFSET = st.integers(-1, 25)
LIMIT = st.sampled_from([-1, 0, 1, 100, 400, 1 << 20])
FRAME_SIZE_BYTES = 4
SMALL_SEGMENTS = {"internal_segment_bytes": "2000", "index_interval_bytes": "150"}


def joined(response: Response) -> bytes:
    """The bytes that would be sent."""
    if isinstance(response, bytes):
        return response
    return b"".join(part if isinstance(part, bytes) else part.read() for part in response)  # type: ignore[union-attr]


def fast_fetch_of(broker: Broker) -> Any:
    """What the selector offers the broker's fetches to."""
    fast_path: Any = broker.replicas.fast_path
    return fast_path.reader


def log_of(broker: Broker, index: int) -> Any:
    """The log of a partition, with everything that can be done to one."""
    return broker.partition(index=index).log


class TwoBrokers(RuleBasedStateMachine):
    """The same happens to two brokers, of which the second has no fast path."""

    def __init__(self) -> None:
        super().__init__()
        self.directories = [tempfile.mkdtemp() for _ in range(2)]
        self.brokers = [
            Broker(filesystem=DiskFileSystem(), directories=(each,)) for each in self.directories
        ]
        fetches: Any = self.brokers[1].replicas._fetches
        fetches._fast_fetch = None
        self.session = self.epoch = 0
        self.steps = 0
        self.waiting: list[list[Any]] = []

    def teardown(self) -> None:
        """Nothing stays behind."""
        for broker, directory in zip(self.brokers, self.directories, strict=True):
            broker.logs.abandon()
            shutil.rmtree(directory)

    @initialize()
    def begin(self) -> None:
        """A topic with records."""
        for broker in self.brokers:
            broker.create("orders", PARTITIONS, **SMALL_SEGMENTS)
        self.produce(0, 3, 50, -1)

    # What happens to the partitions.

    @rule(
        index=INDEX,
        count=st.integers(1, 4),
        value_bytes=st.sampled_from([0, 50, 350]),
        producer=st.sampled_from([-1, -1, -1, 5]),
    )
    def produce(self, index: int, count: int, value_bytes: int, producer: int) -> None:
        """A batch, perhaps in a transaction."""
        for broker in self.brokers:
            log = broker.partition(index=index).log
            entry = log.producers.producers.get(producer)
            sequence = 0 if entry is None else entry.last_sequence + 1
            batch = batch_bytes(
                log.log_end_offset,
                records=count,
                value_bytes=value_bytes,
                pid=producer,
                epoch=-1 if producer < 0 else 0,
                sequence=-1 if producer < 0 else sequence,
                is_transactional=producer >= 0,
            )
            self.append(broker, index, batch)

    @rule(index=INDEX, is_abort=st.booleans())
    def end_transaction(self, index: int, is_abort: bool) -> None:
        """A marker, where a transaction is open."""
        for broker in self.brokers:
            log = broker.partition(index=index).log
            if log.producers.first_unstable_offset() is not None:
                marker = marker_batch(log.log_end_offset, pid=5, is_abort=is_abort)
                self.append(broker, index, bytes(marker.view))

    @staticmethod
    def append(broker: Broker, index: int, records: bytes) -> None:
        """As it is, whoever leads."""
        partition = broker.partition(index=index)
        log_of(broker, index).append_as_follower(records, 0, NOW_MS)
        partition.advance_high_watermark(0)
        broker.replicas._notifier.changed(partition)

    @rule(index=INDEX)
    def delete_records(self, index: int) -> None:
        """The log begins later."""
        for broker in self.brokers:
            offset = broker.partition(index=index).log.high_watermark // 2
            asked = DeleteRecordsPartition(partition_index=index, offset=offset)
            topic = DeleteRecordsTopic(name="orders", partitions=[asked])
            broker.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1000))

    @rule(index=INDEX)
    def apply_retention(self, index: int) -> None:
        """Old segments go."""
        for broker in self.brokers:
            log_of(broker, index).delete_old_segments(NOW_MS)

    @rule(index=INDEX, share=st.integers(0, 4))
    def truncate(self, index: int, share: int) -> None:
        """Records are cut off the end, and others may take their place."""
        for broker in self.brokers:
            log = log_of(broker, index)
            log.truncate_to(log.log_start_offset + share, NOW_MS)

    @rule()
    def recreate(self) -> None:
        """The topic goes and comes back, with another id."""
        for broker in self.brokers:
            broker.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")]))
            broker.create("orders", PARTITIONS, **SMALL_SEGMENTS)

    @rule(index=INDEX, leads=st.sampled_from([True, True, True, False]))
    def change_role(self, index: int, leads: bool) -> None:
        """The broker leads, or does not."""
        for broker in self.brokers:
            broker.partition(index=index).is_leader = leads

    @rule(index=INDEX, share=st.integers(0, 10))
    def hold_back(self, index: int, share: int) -> None:
        """The high watermark is behind the end, as where followers are waited for."""
        for broker in self.brokers:
            log = log_of(broker, index)
            log.update_high_watermark(log.log_start_offset + share)

    # What a consumer asks.

    @rule(
        offsets=st.dictionaries(INDEX, OFFSET, max_size=2),
        limits=st.tuples(LIMIT, LIMIT, st.sampled_from([-1, 0, 1, 500])),
        isolation_level=st.sampled_from([0, 0, 1, 2]),
        epochs=st.sampled_from([(-1, -1), (-1, -1), (0, -1), (1, -1), (-1, 0), (0, 0)]),
        version=st.integers(13, 18),
        shift=st.sampled_from([0, 0, 0, 0, 1]),
        max_wait_ms=st.sampled_from([0, 0, 100]),
    )
    def fetch(
        self,
        offsets: dict[int, int],
        limits: tuple[int, int, int],
        isolation_level: int,
        epochs: tuple[int, int],
        version: int,
        shift: int,
        max_wait_ms: int = 0,
    ) -> None:
        """The next request of a session, or one that is wrong about it."""
        partition_bytes, bytes_max, bytes_min = limits
        answers = []
        for broker in self.brokers:
            every = {} if self.session else {0: 0}
            request = broker.fetch_request(
                *range(PARTITIONS),
                session_id=self.session,
                session_epoch=self.epoch + shift if self.session else 0,
                max_bytes=bytes_max,
                min_bytes=bytes_min,
                partition_max_bytes=partition_bytes,
                isolation_level=isolation_level,
                max_wait_ms=max_wait_ms if self.session else 0,
            )
            wanted = {**every, **offsets}
            asked = [each for each in request.topics[0].partitions if each.partition in wanted]
            for each in asked:
                each.fetch_offset = wanted[each.partition]
                each.current_leader_epoch, each.last_fetched_epoch = epochs
            request.topics[0].partitions = asked
            if not asked:
                request.topics = []
            answers.append(self.call(broker, request, version))
        if answers[0].is_pending:
            assert answers[1].is_pending
            self.epoch += 1
            self.waiting.append(answers)
            self.compare_memories()
        else:
            self.compare(answers, shift)

    def call(self, broker: Broker, request: FetchRequest, version: int) -> Call:
        """Send a request; the first broker offers it to the fast path, as the selector does."""
        if broker is self.brokers[0]:
            frame = encode_request(request, version, 77, "tests")
            parts = fast_fetch_of(broker).answer(frame)
            if parts is not None:
                return Call(frame_request(frame), parts)
        return broker.call(request, version)

    @rule(
        index=st.sampled_from([0, 0, 0, 1]),
        version=st.sampled_from([13, 18]),
        max_bytes=st.sampled_from([1, 300, 9000]),
        isolation_level=st.sampled_from([0, 1]),
        steps=st.integers(1, 6),
    )
    def follow(
        self, index: int, version: int, max_bytes: int, isolation_level: int, steps: int
    ) -> None:
        """What a consumer does who reads one partition in order."""
        log = self.brokers[0].partition(index=index).log
        for _ in range(steps):
            width = log.high_watermark - log.log_start_offset + 1
            self.steps += 1
            offset = log.log_start_offset + self.steps % width
            limits = (max_bytes, 1 << 20, 1)
            self.fetch({index: offset}, limits, isolation_level, (-1, -1), version, 0)

    @rule(
        index=st.sampled_from([0, 0, 0, 1]),
        version=st.sampled_from([13, 18]),
        sizes=st.lists(st.sampled_from([0, 50, 350]), max_size=4),
        limits=st.tuples(st.sampled_from([1, 300]), st.sampled_from([100, 1 << 20])),
    )
    def wait_at_the_end(
        self, index: int, version: int, sizes: list[int], limits: tuple[int, int]
    ) -> None:
        """What a consumer does who has read everything; then records come, or not."""
        if not self.session:
            self.fetch({}, (1 << 20, 1 << 20, 1), 0, (-1, -1), version, 0)
        bytes_min, partition_bytes = limits
        for size in (*sizes, None):
            end = self.brokers[0].partition(index=index).log.high_watermark
            self.fetch(
                {index: end}, (partition_bytes, 1 << 20, bytes_min), 0, (-1, -1), version, 0, 100
            )
            if size is not None:
                self.produce(index, 1, size, -1)
                self.settle()
                self.who_waited_is_answered_alike()

    @rule()
    def settle(self) -> None:
        """What was deferred happens."""
        for broker in self.brokers:
            broker.settle()

    @rule()
    def pass_time(self) -> None:
        """Nobody waits any longer."""
        for broker in self.brokers:
            broker.pass_time(100)

    @invariant()
    def who_waited_is_answered_alike(self) -> None:
        """Both at the same time."""
        for calls in [*self.waiting]:
            assert calls[0].is_pending == calls[1].is_pending
            if not calls[0].is_pending:
                self.waiting.remove(calls)
                first, second = (joined(call.outcome) for call in calls)
                assert first == second
                if calls[0].response.error_code:
                    self.session = self.epoch = 0
                self.compare_memories()

    def compare(self, calls: list[Any], shift: int) -> None:
        """Both answers, and what both brokers remember."""
        first, second = (joined(call.outcome) for call in calls)
        assert first == second
        response = calls[0].response
        if response.error_code:
            self.session = self.epoch = 0
        elif not shift:
            self.session = response.session_id
            self.epoch = self.epoch + 1 if self.session else 0
        self.compare_memories()

    def compare_memories(self) -> None:
        """Both brokers know the same of their sessions."""
        memories = [self.memory(broker) for broker in self.brokers]
        assert memories[0] == memories[1]

    def memory(self, broker: Broker) -> list[Any]:
        """Everything of all sessions, in order."""
        return [
            (
                session.id,
                session.epoch,
                session.last_used_ms,
                [self.known(broker, each) for each in session.changed],
                [self.known(broker, each) for each in session.partitions.values()],
            )
            for session in broker.replicas.fetch_sessions.by_id.values()
        ]

    @staticmethod
    def known(broker: Broker, asked: Any) -> tuple[Any, ...]:
        """What a session knows of a partition."""
        return (
            asked.topic == broker.metadata.topic_id("orders"),
            asked.index,
            asked.fetch_offset,
            asked.partition_max_bytes,
            asked.current_leader_epoch,
            asked.last_fetched_epoch,
            asked.log_start_offset,
            asked.rank,
            asked.sent_high_watermark,
            asked.sent_log_start_offset,
            asked.partition is not None,
        )


TwoBrokers.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
test_both_paths_of_a_fetch_answer_alike = TwoBrokers.TestCase


@given(st.data())
def test_a_damaged_frame_is_declined_or_answered_as_by_the_full_path(data: st.DataObject) -> None:
    machine = TwoBrokers()
    try:
        machine.begin()
        machine.fetch({0: 0}, (1 << 20, 1 << 20, 1), 0, (-1, -1), 18, 0)
        fast, full = machine.brokers
        request = fast.fetch_request(1, session_id=machine.session, session_epoch=machine.epoch)
        if data.draw(st.booleans()):
            request.topics = []
        frame = bytearray(encode_request(request, data.draw(st.integers(13, 18)), 77, "tests"))
        at = data.draw(st.integers(FRAME_SIZE_BYTES, len(frame) - 1))
        frame[at] = data.draw(st.integers(0, 255))
        cut = data.draw(st.sampled_from([0, 0, 1, 4, 30]))
        damaged = bytes(frame[: len(frame) - cut])

        parts = fast_fetch_of(fast).answer(damaged)

        if parts is not None:
            answer: Any = full.apis.handle(frame_request(damaged))
            assert joined(parts) == joined(answer)
    finally:
        machine.teardown()
