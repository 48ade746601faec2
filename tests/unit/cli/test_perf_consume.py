"""The reading side of `millstream perf`, on connections that only pretend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from millstream.cli import perf_consume
from millstream.cli.cluster_view import TopicView
from millstream.cli.perf_consume import ConsumeLoad, FetchPlan, Position
from millstream.errors import KafkaStorageError, OffsetOutOfRange
from millstream.protocol.messages import FetchRequest, FetchResponse
from millstream.protocol.messages.fetch import FetchableTopicResponse, PartitionData
from millstream.records import ControlType, RecordBatchBuilder, control_batch
from millstream.types import Uuid

if TYPE_CHECKING:
    from millstream.cli.perf_pipe import Pipe

TOPIC = TopicView("load", Uuid.ZERO, False, 0, ())
SECOND = 1_000_000_000


class FakePipe:
    """Answers each fetch with what the test put into `answers`."""

    def __init__(self) -> None:
        self.answers: list[FetchResponse] = []
        self.asked: list[dict[int, int]] = []
        self.in_flight = 0

    def post(self, request: FetchRequest, _what: int, _now_ns: int) -> None:
        [topic] = request.topics
        self.asked.append({each.partition: each.fetch_offset for each in topic.partitions})
        self.in_flight += 1

    def take(self, _response: type[FetchResponse]) -> tuple[int, FetchResponse]:
        self.in_flight -= 1
        return 0, self.answers.pop(0)


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> FakePipe:
    monkeypatch.setattr(
        perf_consume, "answered", lambda pipes, *_: [each for each in pipes if each.answers]
    )
    return FakePipe()


def load_of(pipe: FakePipe, positions: dict[int, Position], **limits: Any) -> ConsumeLoad:
    plan = FetchPlan(1000, 1000, 1, 0, **limits)
    return ConsumeLoad(TOPIC, {cast("Pipe[int]", pipe): positions}, plan, ticks=lambda: 3 * SECOND)


def batch(base_offset: int, count: int) -> bytes:
    builder = RecordBatchBuilder()
    builder.extend((0, None, b"value") for _ in range(count))
    return builder.build(base_offset=base_offset)


def answer(records: bytes, error_code: int = 0) -> FetchResponse:
    partition = PartitionData(partition_index=0, records=records, error_code=error_code)
    return FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])


def test_the_next_fetch_begins_where_the_last_one_ended(pipe: FakePipe) -> None:
    load = load_of(pipe, {0: Position(0, 30)})
    pipe.answers = [answer(batch(0, 10) + batch(10, 10)), answer(batch(20, 10))]

    turns = [load.turn(), load.turn()]

    assert turns == [True, False]
    assert pipe.asked == [{0: 0}, {0: 20}]
    assert load.meter.records == 30


def test_records_before_the_start_and_markers_are_not_counted(pipe: FakePipe) -> None:
    load = load_of(pipe, {0: Position(7, 11)})
    marker = control_batch([(ControlType.COMMIT, b"")], timestamp=0, base_offset=10)
    pipe.answers = [answer(batch(0, 10) + marker)]

    assert not load.turn()
    assert load.meter.records == 3


def test_progress_is_that_of_the_limit_which_is_nearest(pipe: FakePipe) -> None:
    pipe.answers = [answer(batch(0, 10))]
    load = load_of(pipe, {0: Position(0, 40), 1: Position(5)}, records_max=20, duration_ns=SECOND)
    assert load.progress() == 0
    load.turn()

    assert load.progress() == 0.5
    assert load_of(pipe, {0: Position(0)}).progress() is None


def test_errors_of_the_whole_and_of_a_partition_are_raised(pipe: FakePipe) -> None:
    pipe.answers = [FetchResponse(error_code=KafkaStorageError.code)]
    with pytest.raises(KafkaStorageError):
        load_of(pipe, {0: Position(0, 1)}).turn()

    pipe.answers = [answer(b"", error_code=OffsetOutOfRange.code)]
    with pytest.raises(OffsetOutOfRange):
        load_of(pipe, {0: Position(0, 1)}).turn()


def test_an_empty_answer_is_no_measure_of_anything(pipe: FakePipe) -> None:
    pipe.answers = [answer(b"")]
    load = load_of(pipe, {0: Position(0)})

    assert load.turn()
    assert (load.meter.requests, load.meter.latencies.count) == (0, 0)
