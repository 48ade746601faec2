"""The compiled way of Produce: the same answers and logs as the way through the handlers."""

from __future__ import annotations

import errno
import struct
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream import _accel
from millstream.errors import (
    KafkaStorageError,
    NotLeaderOrFollower,
    ProtocolError,
    RequestTimedOut,
)
from millstream.protocol.api import ApiKey
from millstream.protocol.frame import decode_response, encode_request, encode_response
from millstream.protocol.messages.metadata import MetadataRequest
from millstream.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from millstream.records import Compression
from millstream.storage.disk import DiskFileSystem
from millstream.testing.sim_filesystem import SimFileSystem
from tests.unit.server.fakes import Client
from tests.unit.server.harness import Broker, frame_request
from tests.unit.storage.batches import batch_bytes

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    not _accel.COMPILED, reason="the compiled kernel is not built (make build)"
)

VERSIONS = range(3, 14)
PARTITIONS = 3
STORAGE_ERROR = KafkaStorageError.code


def warm(broker: Broker, partitions: int = PARTITIONS) -> Broker:
    """Each partition has two records, put there by the handlers."""
    for index in range(partitions):
        broker.produce(partition=index)
        broker.produce(partition=index)
    return broker


def new_broker(**how: Any) -> Broker:
    broker = Broker(**how)
    broker.create("orders", PARTITIONS)
    return warm(broker)


@pytest.fixture
def broker() -> Broker:
    return new_broker()


def frame_of(
    broker: Broker, records: bytes | None = None, version: int = 13, **where: Any
) -> bytearray:
    request = broker.produce_request(records, **where)
    return bytearray(encode_request(request, version, 77, "tests"))


def answers_of(broker: Broker, *frames: bytearray) -> list[Any]:
    assert broker.apis.fast_path is not None
    return broker.apis.fast_path.answer_all(frames)


def partition_answer(answer: bytes, version: int = 13) -> Any:
    response: Any = decode_response(answer[4:], ApiKey.PRODUCE, version)[1]
    (topic,) = response.responses
    (partition,) = topic.partition_responses
    return partition


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_is_answered_as_the_handler_answers_it(version: int) -> None:
    short, long = new_broker(), new_broker()
    frame = frame_of(short, version=version, partition=1)

    expected = long.apis.handle(frame_request(bytes(frame)))

    assert answers_of(short, frame) == [expected]
    assert isinstance(expected, bytes)
    assert partition_answer(expected, version).base_offset == 2


def test_batches_of_one_turn_are_written_with_one_call() -> None:
    filesystem = SimFileSystem(Random(1))
    broker = new_broker(filesystem=filesystem)
    wakeup = broker.logs._registry.watermark_wakeup
    wakeup.is_awake = False
    calls: list[str] = []
    filesystem.before_operation = lambda name, path, size: calls.append(name)

    answers = answers_of(broker, *(frame_of(broker, partition=1) for _ in range(5)))

    assert [partition_answer(each).base_offset for each in answers] == [2, 3, 4, 5, 6]
    assert len(calls) == 1
    assert broker.partition(index=1).log.high_watermark == 7
    assert wakeup.is_awake
    assert broker.partition(index=0).log.log_end_offset == 2


def test_a_write_that_fails_fails_all_batches_in_it_and_leaves_the_log_as_it_was() -> None:
    filesystem = SimFileSystem(Random(1))
    broker = new_broker(filesystem=filesystem)
    log: Any = broker.partition(index=1).log
    before = (log.log_end_offset, log.high_watermark, log.size)
    is_full = True

    def fail(name: str, path: str, size: int) -> None:
        if is_full and "orders-1" in path and name == "write":
            raise OSError(errno.ENOSPC, "no space left on device")

    filesystem.before_operation = fail
    frames = [frame_of(broker, partition=index) for index in (1, 0, 1, 2)]
    answers = [partition_answer(each) for each in answers_of(broker, *frames)]

    assert [each.error_code for each in answers] == [STORAGE_ERROR, 0, STORAGE_ERROR, 0]
    assert [each.base_offset for each in answers] == [-1, 2, -1, 2]
    assert (log.log_end_offset, log.high_watermark, log.size) == before

    is_full = False
    (answer,) = answers_of(broker, frame_of(broker, partition=1))
    assert partition_answer(answer).base_offset == 2
    assert broker.fetch(0, 0).responses[0].partitions[1].high_watermark == 3


def test_a_real_file_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    broker = new_broker(filesystem=DiskFileSystem(), directories=(str(tmp_path),))
    log: Any = broker.partition().log
    file = log.segments.active.open_file()
    file.descriptor, kept = -1, file.descriptor

    answers = answers_of(broker, frame_of(broker), frame_of(broker, partition=1))
    file.descriptor = kept

    assert partition_answer(answers[0]).error_code == STORAGE_ERROR
    assert partition_answer(answers[1]).error_code == 0


def test_a_producer_with_sequences_may_have_several_batches_in_a_turn(broker: Broker) -> None:
    records = [batch_bytes(pid=9, epoch=0, sequence=sequence) for sequence in range(6)]
    broker.produce(records[0])

    first = answers_of(broker, *(frame_of(broker, each) for each in records[1:4]))
    duplicate = answers_of(broker, frame_of(broker, records[3]))
    gap = answers_of(broker, frame_of(broker, records[5]))

    assert [partition_answer(each).base_offset for each in first] == [3, 4, 5]
    assert (duplicate, gap) == ([], []), "left to the full path"


def test_a_write_that_fails_leaves_sequences_as_they_were() -> None:
    filesystem = SimFileSystem(Random(1))
    broker = new_broker(filesystem=filesystem)
    records = [batch_bytes(pid=9, epoch=0, sequence=sequence) for sequence in range(4)]
    broker.produce(records[0])

    filesystem.before_operation = _no_room
    failed = answers_of(broker, *(frame_of(broker, each) for each in records[1:]))
    filesystem.before_operation = None
    again = answers_of(broker, *(frame_of(broker, each) for each in records[1:]))

    assert {partition_answer(each).error_code for each in failed} == {STORAGE_ERROR}
    assert [partition_answer(each).base_offset for each in again] == [3, 4, 5]


def _no_room(name: str, path: str, size: int) -> None:
    if name == "write":
        raise OSError(errno.ENOSPC, "no space left on device")


def test_a_disk_that_fails_before_the_write_is_left_to_the_handlers() -> None:
    filesystem = SimFileSystem(Random(1))
    broker = new_broker(filesystem=filesystem)
    log: Any = broker.partition().log
    log.segments.active.release()
    filesystem.fail_directory("/disk1")

    assert answers_of(broker, frame_of(broker)) == []
    assert only_error(broker) == STORAGE_ERROR


def only_error(broker: Broker) -> int:
    (topic,) = broker.produce().responses
    code: int = topic.partition_responses[0].error_code
    return code


def test_producers_and_others_are_written_in_their_order(broker: Broker) -> None:
    broker.produce(batch_bytes(pid=9, epoch=0, sequence=0))
    frames = [
        frame_of(broker),
        frame_of(broker, batch_bytes(pid=9, epoch=0, sequence=1)),
        frame_of(broker),
    ]

    answers = answers_of(broker, *frames)

    assert [partition_answer(each).base_offset for each in answers] == [3, 4, 5]
    assert broker.partition().log.log_end_offset == 6


def test_a_fetch_that_waits_hears_of_the_records(broker: Broker) -> None:
    waiting = broker.call(broker.fetch_request(2, max_wait_ms=1000))
    assert waiting.is_pending

    answers_of(broker, frame_of(broker))
    broker.settle()

    (topic,) = waiting.response.responses
    assert topic.partitions[0].high_watermark == 3


def test_a_committed_marker_lets_readers_on(broker: Broker) -> None:
    log = broker.partition().log
    log.producers._completed.append((0, 1))
    assert log.last_stable_offset == 0

    answers_of(broker, frame_of(broker))

    assert log.last_stable_offset == 3


def with_another(request: ProduceRequest) -> ProduceRequest:
    data = request.topic_data[0].partition_data
    data.append(PartitionProduceData(index=2, records=batch_bytes()))
    return request


DECLINED: dict[str, Any] = {
    "no answer is wanted": lambda broker: frame_of(broker, acks=0),
    "acks is nonsense": lambda broker: frame_of(broker, acks=7),
    "no such topic": lambda broker: frame_of(broker, topic="unheard-of"),
    "no such topic, by name": lambda broker: frame_of(broker, version=9, topic="unheard-of"),
    "no such partition": lambda broker: frame_of(broker, partition=99),
    "a transaction": lambda broker: frame_of(
        broker, batch_bytes(pid=1, epoch=0, sequence=0, is_transactional=True)
    ),
    "an unknown producer": lambda broker: frame_of(broker, batch_bytes(pid=1, epoch=0, sequence=0)),
    "damaged records": lambda broker: frame_of(broker, batch_bytes()[:-1] + b"\xff"),
    "zstd before its time": lambda broker: frame_of(
        broker, batch_bytes(compression=Compression.ZSTD), version=6
    ),
    "two partitions": lambda broker: bytearray(
        encode_request(with_another(broker.produce_request()), 13, 77, "tests")
    ),
    "another API": lambda broker: bytearray(encode_request(MetadataRequest(), 9, 77, "tests")),
    "a version that is refused": lambda broker: bytearray(
        b"\0\0\0\x0a" + b"\0\0" + b"\0\x02" + bytes(4) + b"\xff\xff"
    ),
    "a header with tags": lambda broker: _with_tags(frame_of(broker)),
    "a client id beyond the frame": lambda broker: _with_client_id_length(frame_of(broker), 30_000),
    "a client id of negative size": lambda broker: _with_client_id_length(frame_of(broker), -2),
    "half a frame": lambda broker: frame_of(broker)[:60],
    "hardly a frame": lambda broker: frame_of(broker)[:9],
}


def _with_tags(frame: bytearray) -> bytearray:
    at = 14 + len("tests")
    assert frame[at] == 0
    return frame[:at] + b"\x01\x07\x01x" + frame[at + 1 :]


def _with_client_id_length(frame: bytearray, length: int) -> bytearray:
    frame[12:14] = length.to_bytes(2, "big", signed=True)
    return frame


@pytest.mark.parametrize("case", DECLINED)
def test_what_is_not_ordinary_is_declined_untouched(broker: Broker, case: str) -> None:
    frame = DECLINED[case](broker)
    before = bytes(frame)

    assert answers_of(broker, frame) == []
    assert frame == before
    assert [broker.partition(index=index).log.log_end_offset for index in range(3)] == [2, 2, 2]


@pytest.mark.parametrize("case", ["no leader", "closed", "internal", "too few"])
def test_a_partition_that_cannot_take_records_now_is_declined(broker: Broker, case: str) -> None:
    partition = broker.partition()
    if case == "no leader":
        partition.is_leader = False
    elif case == "closed":
        partition.log.close()
    elif case == "internal":
        partition.is_internal = True
    else:
        partition.is_under_min_isr = True

    assert answers_of(broker, frame_of(broker)) == []


@pytest.mark.parametrize("setting", ["cleanup_policy", "message_timestamp_type"])
def test_a_topic_that_looks_into_batches_is_declined(broker: Broker, setting: str) -> None:
    value = {"cleanup_policy": "compact", "message_timestamp_type": "LogAppendTime"}[setting]
    broker.create("other", 1, **{setting: value})
    for _ in range(2):
        broker.produce(topic="other")

    assert answers_of(broker, frame_of(broker, topic="other")) == []


frames_of_a_turn = st.lists(
    st.tuples(
        st.integers(0, PARTITIONS - 1),
        st.sampled_from([3, 8, 9, 13]),
        st.sampled_from([-1, -1, 1, 2]),
        st.integers(1, 3),
        st.sampled_from([0, 0, 0, 0, 1]),
    ),
    max_size=6,
)


@settings(max_examples=40, deadline=None)
@given(st.lists(frames_of_a_turn, max_size=6))
def test_turns_leave_the_same_logs_behind_as_single_requests(turns: list[Any]) -> None:
    disks = SimFileSystem(Random(1)), SimFileSystem(Random(1))
    short, long = (new_broker(filesystem=disk) for disk in disks)
    sequences: dict[tuple[int, int], int] = {}
    for turn in turns:
        frames = []
        for index, version, pid, count, damage in turn:
            sequence = sequences.get((index, pid), 0)
            records = bytearray(
                batch_bytes(
                    records=count,
                    pid=pid,
                    epoch=0 if pid >= 0 else -1,
                    sequence=sequence if pid >= 0 else -1,
                )
            )
            records[-1] ^= damage
            if not damage:
                sequences[index, pid] = sequence + count
            frames.append(frame_of(short, bytes(records), version, partition=index))
        expected = [long.apis.handle(frame_request(bytes(each))) for each in frames]
        assert _turn(short, frames) == expected
    for index in range(PARTITIONS):
        for broker in (short, long):
            broker.partition(index=index).log.close()
        directory = f"/disk1/orders-{index}"
        for each in disks[0].scan(directory):
            path = f"{directory}/{each.name}"
            assert disks[0].read_bytes(path) == disks[1].read_bytes(path), path


def _turn(broker: Broker, frames: list[bytearray]) -> list[Any]:
    """As the selector does it: what is declined goes to the handler, and then on."""
    answers: list[Any] = []
    while frames:
        taken = answers_of(broker, *frames)
        answers += taken
        frames = frames[len(taken) :]
        if frames:
            answers.append(broker.apis.handle(frame_request(bytes(frames[0]))))
            frames = frames[1:]
    return answers


class TestErrorsThatAreFoundLate:
    @staticmethod
    def followed_broker() -> Broker:
        broker = Broker(brokers=(1, 2))
        broker.controller.create("orders", [[1, 2]])
        broker.publish()
        broker.produce(acks=1)
        return broker

    @pytest.mark.parametrize("version", VERSIONS)
    def test_they_are_answered_as_the_handler_answers_them(self, version: int) -> None:
        short, long = self.followed_broker(), self.followed_broker()
        frame = frame_of(short, version=version)
        call = long.call(long.produce_request(), version)
        (deferred,) = answers_of(short, frame)
        deferred.connection = Client()

        for broker in (short, long):
            broker.pass_time(10_000)

        assert deferred.response == call.frame
        answer = partition_answer(deferred.response, version)
        assert answer.error_code == RequestTimedOut.code
        assert (version >= 8) == bool(answer.error_message)

    def test_one_of_a_leader_that_has_changed_names_the_new_one(self) -> None:
        broker = Broker(brokers=(1, 2))
        broker.controller.create("orders", [[2, 1]])
        broker.publish()
        part = PartitionProduceResponse(index=0, base_offset=5, log_start_offset=3)
        topic = TopicProduceResponse(name="orders", partition_responses=[part])
        prepared = encode_response(ProduceResponse(responses=[topic]), 12, 77)
        assert broker.replicas.fast_path is not None
        assert broker.replicas.fast_path.explain is not None

        answer = broker.replicas.fast_path.explain(prepared, 12, NotLeaderOrFollower("!"), Client())

        found = partition_answer(answer, 12)
        assert (found.error_code, found.base_offset, found.log_start_offset) == (6, -1, 3)
        assert (found.current_leader.leader_id, found.current_leader.leader_epoch) == (2, 0)
        assert found.error_message == "!"


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(VERSIONS),
    st.lists(st.tuples(st.integers(4, 250), st.integers(1, 255)), max_size=3),
    st.integers(0, 40),
)
def test_damaged_frames_end_as_they_do_in_the_handlers(
    version: int, damage: list[tuple[int, int]], missing: int
) -> None:
    short, long = new_broker(), new_broker()
    frame = frame_of(short, version=version)
    for at, bits in damage:
        frame[at % len(frame)] ^= bits if at % len(frame) >= 4 else 0
    frame = frame[: len(frame) - missing]

    expected = _outcome(long, bytes(frame))
    taken = answers_of(short, frame)

    assert (taken[0] if taken else _outcome(short, bytes(frame))) == expected
    for index in range(PARTITIONS):
        ends = [each.partition(index=index).log.log_end_offset for each in (short, long)]
        assert ends[0] == ends[1]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(VERSIONS), st.binary(max_size=120), st.integers(0, 60))
def test_any_bytes_behind_a_header_end_as_they_do_in_the_handlers(
    version: int, data: bytes, kept: int
) -> None:
    short, long = new_broker(), new_broker()
    whole = frame_of(short, version=version)
    # The header, some of a real body, then whatever.
    frame = whole[: 20 + kept] + data
    struct.pack_into(">i", frame, 0, len(frame) - 4)

    expected = _outcome(long, bytes(frame))
    taken = answers_of(short, frame)

    assert (taken[0] if taken else _outcome(short, bytes(frame))) == expected


def _outcome(broker: Broker, frame: bytes) -> Any:
    """What the network gets of the handlers; frames without a sound header never come to them."""
    try:
        return broker.apis.handle(frame_request(frame))
    except (ProtocolError, struct.error, ValueError, IndexError) as error:
        return type(error)
