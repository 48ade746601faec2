"""Group commit: who shares a round, who is released when, and what a failed fsync means."""

from __future__ import annotations

import asyncio
import queue
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from millstream.errors import ApiError, KafkaStorageError, NotLeaderOrFollower
from millstream.storage.manager.flusher import GroupCommit

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.storage.manager.flusher import FlushJob


@dataclass
class FakeJob:
    """Syncs by counting."""

    log: FakeLog
    end_offset: int

    def sync(self) -> None:
        self.log.sync_count += 1
        if self.log.fault is not None:
            raise self.log.fault


@dataclass(eq=False)
class FakeLog:
    """A log as far as a flusher can see."""

    end_offset: int = 0
    recovery_point: int = 0
    truncation_count: int = 0
    sync_count: int = 0
    fault: Exception | None = None
    begin_fault: ApiError | None = None

    def append(self, count: int = 1) -> int:
        self.end_offset += count
        return self.end_offset

    def begin_flush(self) -> FakeJob:
        if self.begin_fault is not None:
            raise self.begin_fault
        return FakeJob(self, self.end_offset)

    def finish_flush(self, job: FlushJob) -> None:
        self.recovery_point = job.end_offset


@dataclass
class Owner:
    """A single-threaded owner: nothing happens until it is told to step."""

    events: deque[Callable[[], None]] = field(default_factory=deque)
    released: list[tuple[str, ApiError | None]] = field(default_factory=list)
    failures: list[KafkaStorageError] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.commits = GroupCommit(
            directory="/data",
            run=self.events.append,
            post=self.events.append,
            on_failure=self.failures.append,
        )

    def wait(self, name: str, log: FakeLog, offset: int) -> None:
        self.commits.wait(log, offset, lambda error: self.released.append((name, error)))

    def step(self) -> None:
        self.events.popleft()()

    def settle(self) -> None:
        while self.events:
            self.step()

    @property
    def names(self) -> list[str]:
        return [name for name, error in self.released if error is None]


@pytest.fixture
def owner() -> Owner:
    return Owner()


def test_a_waiter_is_released_when_its_records_are_on_disk(owner: Owner) -> None:
    log = FakeLog()
    owner.wait("first", log, log.append())

    assert owner.names == []
    owner.settle()

    assert owner.names == ["first"]
    assert log.recovery_point == 1


def test_asking_from_within_a_callback_never_makes_rounds_overlap(owner: Owner) -> None:
    log, other = FakeLog(), FakeLog()
    begun = 0

    def run(work: Callable[[], None]) -> None:
        nonlocal begun
        begun += 1
        assert begun - owner.commits.round_count == 1
        owner.events.append(work)

    def ask_again(error: ApiError | None) -> None:
        owner.wait("again", log, log.append())

    owner.commits._run = run
    owner.commits.wait(log, log.append(), ask_again)
    for _ in range(8):
        owner.step()
        owner.wait("other", other, other.append())
    owner.settle()

    assert (log.recovery_point, other.recovery_point) == (2, 8)
    assert begun == owner.commits.round_count


def test_everybody_who_asks_in_one_breath_shares_one_sync(owner: Owner) -> None:
    log, other = FakeLog(), FakeLog()
    for number in range(10):
        owner.wait(f"{number}", log, log.append())
    owner.wait("other", other, other.append())

    owner.settle()

    assert len(owner.names) == 11
    assert (log.sync_count, other.sync_count) == (1, 1)
    assert owner.commits.round_count == 1


def test_who_comes_while_a_round_runs_waits_for_the_next(owner: Owner) -> None:
    log = FakeLog()
    owner.wait("early", log, log.append())
    owner.step()  # the round begins and has taken what there was
    owner.wait("late", log, log.append())

    owner.step()
    owner.step()  # the first round ends
    assert owner.names == ["early"]
    owner.settle()

    assert owner.names == ["early", "late"]
    assert owner.commits.round_count == 2


def test_what_is_on_disk_already_needs_no_round(owner: Owner) -> None:
    log = FakeLog(end_offset=5, recovery_point=5)
    owner.wait("first", log, 5)

    assert owner.names == []  # never inside the call
    owner.settle()

    assert owner.names == ["first"]
    assert log.sync_count == 0


def test_a_flush_without_a_waiter_moves_the_recovery_point(owner: Owner) -> None:
    log = FakeLog(end_offset=5)
    owner.commits.flush(log)

    owner.settle()

    assert log.recovery_point == 5


def test_a_failed_sync_fails_its_waiters_and_is_never_tried_again(owner: Owner) -> None:
    log = FakeLog(fault=OSError(5, "Input/output error"))
    owner.wait("first", log, log.append())
    owner.settle()
    log.fault = None

    owner.wait("second", log, log.append())
    owner.commits.flush(log)
    owner.settle()

    assert log.sync_count == 1
    assert log.recovery_point == 0
    assert [type(error) for _, error in owner.released] == [KafkaStorageError] * 2
    assert "/data: fsync failed" in str(owner.released[0][1])
    assert owner.failures == [owner.commits.failure]


def test_logs_that_were_synced_before_the_failure_are_acknowledged(owner: Owner) -> None:
    good, bad, unlucky = FakeLog(), FakeLog(fault=OSError(5, "EIO")), FakeLog()
    owner.wait("good", good, good.append())
    owner.wait("bad", bad, bad.append())
    owner.wait("unlucky", unlucky, unlucky.append())

    owner.settle()

    assert owner.names == ["good"]
    assert (good.recovery_point, unlucky.recovery_point, unlucky.sync_count) == (1, 0, 0)


def test_who_waits_for_the_round_after_the_failed_one_is_told(owner: Owner) -> None:
    log = FakeLog(fault=OSError(5, "EIO"))
    owner.wait("first", log, log.append())
    owner.step()
    owner.wait("second", log, log.append())

    owner.settle()

    assert [name for name, error in owner.released if error] == ["first", "second"]


def test_an_unexpected_exception_does_not_leave_anybody_waiting(owner: Owner) -> None:
    log = FakeLog(fault=RuntimeError("a bug"))
    owner.wait("first", log, log.append())

    owner.settle()

    assert isinstance(owner.released[0][1], KafkaStorageError)


def test_a_log_that_cannot_begin_does_not_disturb_the_others(owner: Owner) -> None:
    closed, log = FakeLog(begin_fault=KafkaStorageError("the log is closed")), FakeLog()
    owner.wait("closed", closed, closed.append())
    owner.wait("open", log, log.append())

    owner.settle()

    assert owner.names == ["open"]
    assert owner.commits.failure is None


def test_records_that_were_truncated_meanwhile_are_not_acknowledged(owner: Owner) -> None:
    log = FakeLog()
    owner.wait("first", log, log.append())
    owner.step()
    log.truncation_count += 1

    owner.settle()

    assert isinstance(owner.released[0][1], NotLeaderOrFollower)


def test_closing_releases_those_who_wait_with_the_reason(owner: Owner) -> None:
    log = FakeLog()
    owner.wait("first", log, log.append())
    reason = KafkaStorageError("the broker stops")

    owner.commits.close(reason)
    owner.wait("second", log, log.append())
    owner.settle()

    assert owner.released == [("first", reason), ("second", reason)]
    assert log.sync_count == 0


def test_who_asks_hears_when_all_that_wait_now_are_answered(owner: Owner) -> None:
    log = FakeLog()
    told: list[object] = []
    owner.commits.when_settled(lambda: told.append("idle"))
    assert told == ["idle"]

    owner.wait("first", log, log.append())
    owner.step()  # The round begins; its sync is still to come.
    owner.wait("second", log, log.append())
    owner.commits.when_settled(lambda: told.append(f"after {owner.names}"))
    assert told == ["idle"]
    owner.settle()

    assert told == ["idle", "after ['first', 'second']"]


def test_who_comes_later_does_not_delay_that_word(owner: Owner) -> None:
    log = FakeLog()
    told: list[object] = []

    def ask_again(error: ApiError | None) -> None:
        if owner.commits.round_count < 10:
            owner.commits.wait(log, log.append(), ask_again)

    owner.commits.wait(log, log.append(), ask_again)
    owner.commits.when_settled(lambda: told.append(owner.commits.round_count))
    owner.settle()

    assert told == [2]


def test_a_closed_directory_keeps_nobody_waiting(owner: Owner) -> None:
    log = FakeLog()
    told: list[object] = []
    owner.wait("first", log, log.append())
    owner.commits.when_settled(lambda: told.append("closed"))

    owner.commits.close(KafkaStorageError("gone"))
    assert told == ["closed"]
    owner.commits.when_settled(lambda: told.append("after"))

    assert told == ["closed", "after"]


def test_it_works_under_an_asyncio_loop_with_a_thread_for_the_syncs() -> None:
    log = FakeLog()

    async def append_and_wait(commits: GroupCommit) -> None:
        loop = asyncio.get_running_loop()
        released = loop.create_future()
        commits.wait(log, log.append(), released.set_result)
        assert await released is None

    async def main() -> int:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as thread:
            commits = GroupCommit(
                directory="/data",
                run=thread.submit,
                post=loop.call_soon_threadsafe,
                on_failure=lambda error: None,
            )
            await asyncio.gather(*(append_and_wait(commits) for _ in range(100)))
        return commits.round_count

    assert asyncio.run(main()) == 1
    assert log.recovery_point == 100


def test_it_works_for_a_plain_thread_with_a_queue() -> None:
    log, events = FakeLog(), queue.SimpleQueue[object]()
    released: list[ApiError | None] = []
    with ThreadPoolExecutor(1) as thread:
        commits = GroupCommit(
            directory="/data", run=thread.submit, post=events.put, on_failure=lambda error: None
        )
        commits.wait(log, log.append(), released.append)
        while not released:
            event = events.get()
            assert callable(event)
            event()

    assert released == [None]
