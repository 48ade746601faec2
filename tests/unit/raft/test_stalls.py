"""A log without room stalls the replica: nothing is lost, nothing promised, and it goes on."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from millstream.clock import ManualClock
from millstream.errors import KafkaStorageError
from millstream.protocol.messages import DescribeQuorumRequest
from millstream.raft import wire_requests
from millstream.raft.driver import STALL_RETRY_MS
from millstream.types import OffsetAndEpoch
from tests.unit.raft.bench import LISTENER, key_of, node
from tests.unit.raft.test_driver import Recorder, make

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.protocol.message import Message
    from millstream.raft.driver import RaftDriver


class Rig:
    """A quorum of one, and the room on its disk."""

    def __init__(self, *voters: int) -> None:
        self.clock = ManualClock()
        self.ports = Recorder()
        self.driver: RaftDriver = make(self.ports, *(voters or (1,)), clock=self.clock)
        self.driver.start()
        self.ports.calls.clear()

    def set_full(self, *, is_full: bool = True) -> None:
        self.ports.is_full = self.ports.store.is_full = is_full

    def wait(self) -> None:
        """Until the alarm goes off."""
        assert self.ports.deadline_ms == self.clock.monotonic_ms() + STALL_RETRY_MS
        self.clock.advance(STALL_RETRY_MS)
        self.driver.tick()


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_records_without_room_are_accepted_once_and_appended_when_there_is(rig: Rig) -> None:
    rig.set_full()
    assert rig.driver.submit(1, [b"a", b"b"]) == (1, 3)
    assert rig.ports.calls == ["append", "stalled"]
    assert rig.driver.obstacle is not None
    rig.wait()
    assert rig.ports.high_watermark == 1

    rig.set_full(is_full=False)
    rig.wait()

    assert rig.driver.obstacle is None
    assert rig.ports.calls[-3:] == ["append", "flush", "committed 3"]
    assert rig.driver.submit(1, [b"c"]) == (3, 4)
    assert rig.ports.deadline_ms is None, "no timer without need"


def test_while_it_is_stalled_everything_else_is_refused_and_the_core_learns_nothing(
    rig: Rig,
) -> None:
    rig.set_full()
    rig.driver.submit(1, [b"a"])
    answers: list[Message] = []

    with pytest.raises(KafkaStorageError, match="full"):
        rig.driver.submit(1, [b"b"])
    with pytest.raises(KafkaStorageError, match="full"):
        rig.driver.upgrade_kraft_version(1, 1)
    with pytest.raises(KafkaStorageError, match="full"):
        rig.driver.handle(DescribeQuorumRequest(), 2, LISTENER, answers.append)

    assert rig.driver.core.outline.end_offset == 2
    assert answers == []


def test_a_batch_that_was_written_before_the_room_ended_is_not_written_twice(rig: Rig) -> None:
    # Two submissions that are appended in one go.
    rig.driver.core.state.append_due_ms = 1 << 40  # type: ignore[union-attr]
    rig.driver.submit(1, [b"a"])
    rig.driver.submit(1, [b"b"])
    rig.driver.core.state.append_due_ms = 0  # type: ignore[union-attr]
    rig.set_full()
    rig.driver.tick()
    assert rig.ports.end_offset == 2, "the first of two"

    rig.set_full(is_full=False)
    rig.wait()

    assert rig.ports.end_offset == 3
    assert rig.ports.high_watermark == 3


def test_a_flush_without_descriptors_is_asked_for_again(rig: Rig) -> None:
    waiting: list[Callable[[], None]] = []
    rig.ports.schedule_flush = waiting.append
    rig.driver.submit(1, [b"a"])
    rig.set_full()
    waiting.pop()()
    assert rig.ports.calls == ["append", "flush", "stalled"]

    rig.set_full(is_full=False)
    rig.ports.schedule_flush = lambda sync: sync()
    rig.wait()

    assert rig.ports.calls[-2:] == ["flush", "committed 2"]


def test_a_vote_that_cannot_be_written_is_not_given_before_it_is() -> None:
    rig = Rig(1, 2, 3)
    request = wire_requests.vote_request(
        node(2), key_of(1), 3, OffsetAndEpoch(0, 0), is_pre_vote=False
    )
    answers: list[Message] = []
    rig.set_full()
    rig.driver.handle(request, 2, LISTENER, answers.append)
    assert answers == []

    rig.set_full(is_full=False)
    rig.wait()

    assert len(answers) == 1
    assert rig.ports.store.written[-1].epoch == 3


def test_a_shutdown_does_not_wait_for_room(rig: Rig) -> None:
    rig.set_full()
    rig.driver.submit(1, [b"a"])

    rig.driver.shut_down(60_000)

    assert rig.ports.calls[-1] == "shut down"
    rig.set_full(is_full=False)
    rig.driver.tick()
    assert rig.ports.end_offset == 1, "nothing is written after that"


def test_a_start_without_room_fails_with_the_reason() -> None:
    ports = Recorder()
    ports.is_full = ports.store.is_full = True

    with pytest.raises(KafkaStorageError, match="full"):
        make(ports, 1).start()


def test_it_is_said_once_and_that_it_goes_on(caplog: pytest.LogCaptureFixture, rig: Rig) -> None:
    with caplog.at_level(logging.INFO, logger="millstream.raft"):
        for _ in range(3):
            rig.set_full()
            rig.driver.submit(1, [b"a"])
            for _ in range(5):
                rig.wait()
            rig.set_full(is_full=False)
            rig.wait()

    levels = [each.levelname for each in caplog.records]
    assert levels == ["ERROR", "INFO"]


def test_a_broken_log_ends_the_replica(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "broken")

    failures: list[Exception] = []
    rig.driver._on_failure = failures.append
    monkeypatch.setattr(rig.ports, "append", fail)

    rig.driver.submit(1, [b"a"])

    assert len(failures) == 1
    assert "flush" not in rig.ports.calls
    with pytest.raises(KafkaStorageError, match="broken"):
        rig.driver.submit(1, [b"b"])
    rig.driver.tick()
    assert rig.ports.deadline_ms is None
