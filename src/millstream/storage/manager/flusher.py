"""Group commit: one round of fsync for all the partitions of a directory that wait for disk.

A topic with `millstream.durability=disk` acknowledges a record when it is on disk. Whoever waits
for that asks `GroupCommit`, which runs rounds: while one round syncs, everybody who asks joins the
next. So under load an fsync is shared by all appends that arrived during the one before, and at
rest an append waits for one fsync alone.

The owner (the broker's event loop, a plain thread with a queue, the simulator) calls every method
and gets every callback; only `FlushJob.sync` runs elsewhere, on what `run` gives it. There is one
`GroupCommit` per log directory, so that a slow disk delays nobody else's records, and a failed one
fails alone.

    asyncio:      GroupCommit(run=ThreadPoolExecutor(1).submit, post=loop.call_soon_threadsafe, ...)
    plain thread: GroupCommit(run=ThreadPoolExecutor(1).submit, post=queue.put, ...)
    simulation:   GroupCommit(run=events.append, post=events.append, ...)

A failed fsync is never tried again: the kernel may have dropped the pages it could not write and
marked them clean, so a second call would succeed and mean nothing.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from millstream.errors import ApiError, KafkaStorageError, NotLeaderOrFollower

if TYPE_CHECKING:
    from collections.abc import Callable

    Work: TypeAlias = Callable[[], None]
    Completion: TypeAlias = Callable[[ApiError | None], None]

_log = logging.getLogger(__name__)


class FlushJob(Protocol):
    """What was to be synced at one moment: files that the owner handed over."""

    @property
    def end_offset(self) -> int:
        """Every record before this offset is on disk once `sync` has returned."""
        ...

    def sync(self) -> None:
        """Do it; called once, not on the owner's thread."""
        ...


class FlushableLog(Protocol):
    """What a log must offer to take part."""

    @property
    def recovery_point(self) -> int:
        """Every record before this offset is on disk."""
        ...

    @property
    def truncation_count(self) -> int:
        """Changes whenever records were cut off the log's end."""
        ...

    def begin_flush(self) -> FlushJob:
        """Hand over what is not on disk yet."""
        ...

    def finish_flush(self, job: FlushJob) -> None:
        """The job is done: move the recovery point."""
        ...


@dataclass(slots=True)
class _Waiter:
    """One acknowledgement that is due when the disk has everything before an offset."""

    offset: int
    truncation_count: int
    done: Completion


@dataclass(slots=True, eq=False)
class _LogRound:
    """One log's part in one round."""

    log: FlushableLog
    waiters: list[_Waiter] = field(default_factory=list)
    job: FlushJob | None = None
    is_synced: bool = False
    error: ApiError | None = None


class GroupCommit:
    """The rounds of one log directory."""

    def __init__(
        self,
        *,
        directory: str,
        run: Callable[[Work], object],
        post: Callable[[Work], object],
        on_failure: Callable[[KafkaStorageError], object],
    ) -> None:
        self.failure: ApiError | None = None
        """Why this directory takes no more commits; None while all is well."""
        self._directory = directory
        self._run = run
        self._post = post
        self._on_failure = on_failure
        self._next: dict[FlushableLog, _LogRound] = {}
        self._is_busy = False
        # After which round somebody wants to hear that all who waited have been answered.
        self._settled: list[tuple[int, Work]] = []
        self.round_count = 0
        """How many rounds have ended: far fewer than commits, under load."""

    def wait(self, log: FlushableLog, offset: int, done: Completion) -> None:
        """Call `done` when every record before `offset` is on disk, or never will be.

        It gets None, or the error. It is called later by the owner, never before this returns.
        """
        if self.failure is not None:
            self._complete_later(done, self.failure)
        elif log.recovery_point >= offset:
            self._complete_later(done, None)
        else:
            self._join(log).waiters.append(_Waiter(offset, log.truncation_count, done))

    def flush(self, log: FlushableLog) -> None:
        """Sync a log in the next round although nobody waits: `flush.messages`, `flush.ms`."""
        if self.failure is None:
            self._join(log)

    def when_settled(self, done: Work) -> None:
        """Call `done` when everybody who waits now has been answered, perhaps at once."""
        if self._is_busy and self.failure is None:
            # The round that runs, and the one that gathers meanwhile.
            self._settled.append((self.round_count + 2, done))
        else:
            done()

    def close(self, reason: ApiError) -> None:
        """Begin no more rounds; everybody who waits for one, now or later, gets the reason."""
        self.failure = self.failure or reason
        pending, self._next = self._next, {}
        for part in pending.values():
            for waiter in part.waiters:
                waiter.done(self.failure)
        self._tell_settled(is_idle=True)

    def _join(self, log: FlushableLog) -> _LogRound:
        part = self._next.get(log)
        if part is None:
            part = self._next[log] = _LogRound(log)
            if not self._is_busy:
                # Not at once: whatever else the owner has at hand shall be in the same round.
                self._is_busy = True
                self._post(self._begin_round)
        return part

    def _begin_round(self) -> None:
        parts = list(self._next.values())
        self._next = {}
        for part in parts:
            try:
                part.job = part.log.begin_flush()
            except ApiError as error:
                part.error = error
        if parts:
            self._run(lambda: self._sync(parts))
        else:
            self._is_busy = False

    def _sync(self, parts: list[_LogRound]) -> None:
        """The only part that is not on the owner's thread."""
        failure: KafkaStorageError | None = None
        for part in parts:
            if part.job is not None:
                try:
                    part.job.sync()
                except Exception as error:
                    failure = self._storage_error(error)
                    break
                part.is_synced = True
        self._post(lambda: self._end_round(parts, failure))

    def _end_round(self, parts: list[_LogRound], failure: KafkaStorageError | None) -> None:
        self.round_count += 1
        if failure is not None and self.failure is None:
            self.failure = failure
            _log.error("%s", failure)
            self._on_failure(failure)
        for part in parts:
            self._release(part)
        # Busy until here: whoever asks from within a callback joins the round that begins now.
        if self.failure is not None:
            self.close(self.failure)
        elif self._next:
            self._begin_round()
        else:
            self._is_busy = False
        self._tell_settled(is_idle=not self._is_busy)

    def _tell_settled(self, *, is_idle: bool) -> None:
        pending, self._settled = self._settled, []
        for last_round, done in pending:
            if is_idle or self.round_count >= last_round:
                done()
            else:
                self._settled.append((last_round, done))

    def _release(self, part: _LogRound) -> None:
        if part.is_synced and part.job is not None:
            part.log.finish_flush(part.job)
        else:
            part.error = part.error or self.failure
        for waiter in part.waiters:
            waiter.done(part.error or _truncation_error(part.log, waiter))

    def _complete_later(self, done: Completion, error: ApiError | None) -> None:
        self._post(lambda: done(error))

    def _storage_error(self, cause: Exception) -> KafkaStorageError:
        error = KafkaStorageError(
            f"{self._directory}: fsync failed ({cause}); what it was to write may be lost, "
            "so the directory is taken offline"
        )
        error.__cause__ = cause
        return error


def _truncation_error(log: FlushableLog, waiter: _Waiter) -> ApiError | None:
    """A log is cut only when this broker no longer leads: the records may be gone."""
    if log.truncation_count == waiter.truncation_count:
        return None
    return NotLeaderOrFollower("the log was truncated while its records waited for the disk")
