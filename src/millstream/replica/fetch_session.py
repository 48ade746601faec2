"""Fetch sessions (KIP-227): the broker remembers what a client fetches, so both say only changes.

The Fetch handler opens a `FetchContext` with what a request says, `ReplicaManager` reads the
context's partitions, and `FetchContext.finish` says what goes into the response. A session is told
which of its partitions have changed (`SessionWatcher`), so a client of ten thousand quiet
partitions costs no more than one of ten. A follower's fetch is an acknowledgement of all of them:
those that are at the end and in sync take the time of it from the session (`FollowerState`). One
thread owns it all. Which sessions are kept is decided in `fetch_session_cache`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.errors import InvalidFetchSessionEpoch
from millstream.replica.fetch_state import UNKNOWN, FetchSessionState, SessionWatcher

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.errors import ApiError
    from millstream.network.server.request import ResponsePart
    from millstream.replica.fetch_partition import FetchPartition, FetchPartitionData
    from millstream.replica.fetch_session_cache import FetchSessionCache
    from millstream.types import Uuid

NO_SESSION_ID: Final = 0
INITIAL_EPOCH: Final = 0
"""A full fetch that asks for a session."""
FINAL_EPOCH: Final = -1
"""A full fetch that wants no session, and closes the one it names."""
_EPOCH_MAX: Final = (1 << 31) - 1


def next_epoch(epoch: int) -> int:
    """The epoch of the request after one with `epoch`."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == _EPOCH_MAX else epoch + 1


class FetchSession(FetchSessionState):
    """The partitions that one client fetches, in the order in which they are served."""

    __slots__ = ("fetched_ms", "restless")

    def __init__(
        self,
        session_id: int,
        asked: Iterable[FetchPartition],
        *,
        is_follower: bool,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> None:
        super().__init__(
            session_id,
            next_epoch(INITIAL_EPOCH),
            is_follower=is_follower,
            uses_topic_ids=uses_topic_ids,
            now_ms=now_ms,
        )
        self.fetched_ms = now_ms
        """When the partitions of a follower's last fetch had been looked at."""
        self.restless: dict[FetchPartition, None] = {}
        """Partitions of a follower that are looked at each time: it lags, or is to join the ISR."""
        self.update(asked, ())

    def update(
        self, asked: Iterable[FetchPartition], forgotten: Iterable[tuple[str | Uuid, int]]
    ) -> None:
        """Take in what an incremental request says."""
        for each in asked:
            known = self.partitions.get((each.topic, each.index))
            if known is None:
                self._add(each)
            else:
                if self.is_follower and not _goes_on(known, each):
                    # It made nothing of the last answer, with which it was told the watermark.
                    known.sent_high_watermark = UNKNOWN
                known.update(each)
                self.changed[known] = None
        for key in forgotten:
            gone = self.partitions.pop(key, None)
            if gone is not None:
                self._remove(gone)

    def candidates(self) -> list[FetchPartition]:
        """What may have something to say, in the session's order."""
        if self.restless:
            return sorted(self.changed | self.restless, key=_rank_of)
        return sorted(self.changed, key=_rank_of) if len(self.changed) > 1 else [*self.changed]

    def note(self, asked: FetchPartition, found: FetchPartitionData) -> bool:
        """Note what a partition answers; whether the client does not know it yet.

        A partition without news is left alone from now on, until it changes.
        """
        has_records = found.records is not None
        is_news = (
            has_records
            or found.high_watermark != asked.sent_high_watermark
            or found.log_start_offset != asked.sent_log_start_offset
            or found.is_urgent
        )
        # An error comes without watermarks, so that its end is news, whatever it leaves.
        asked.sent_high_watermark = found.high_watermark
        asked.sent_log_start_offset = found.log_start_offset
        if has_records:
            self._rank_last(asked)
        elif not found.is_urgent and not found.is_withheld:
            self.changed.pop(asked, None)
        return is_news

    def close(self) -> None:
        """Be told nothing more."""
        for each in self.partitions.values():
            self._remove(each)
        self.partitions.clear()

    def _add(self, asked: FetchPartition) -> None:
        self._rank_last(asked)
        asked.watcher = self
        if asked.partition is not None:
            asked.watch(asked.partition)
        self.partitions[asked.topic, asked.index] = asked
        self.changed[asked] = None
        if self.is_follower:
            self.restless[asked] = None

    def _remove(self, gone: FetchPartition) -> None:
        gone.unwatch()
        gone.watcher = None
        self.changed.pop(gone, None)
        self.restless.pop(gone, None)

    def _rank_last(self, asked: FetchPartition) -> None:
        self.last_rank += 1
        asked.rank = self.last_rank


def _goes_on(before: FetchPartition, after: FetchPartition) -> bool:
    """Whether a follower has appended what it got, and asks for more."""
    return (
        after.fetch_offset > before.fetch_offset
        and after.current_leader_epoch == before.current_leader_epoch
    )


def _rank_of(asked: FetchPartition) -> int:
    return asked.rank


class FetchContext(SessionWatcher):
    """One fetch request: what to read for it, and what to answer.

    Without a session it answers everything it was asked, and is its own watcher while it waits.
    """

    __slots__ = (
        "_asked",
        "_cache",
        "_is_waiting",
        "_now_ms",
        "_session",
        "_session_epoch",
        "_uses_topic_ids",
        "is_follower",
    )

    def __init__(
        self,
        asked: Sequence[FetchPartition],
        *,
        session: FetchSession | None = None,
        cache: FetchSessionCache | None = None,
        is_follower: bool = False,
        uses_topic_ids: bool = False,
        now_ms: int = 0,
    ) -> None:
        """With a `cache` a full fetch becomes a session, if there is room for it."""
        super().__init__()
        self._now_ms = now_ms
        self._is_waiting = False
        self._uses_topic_ids = uses_topic_ids
        self._asked = asked
        self._session = session
        self._session_epoch = 0 if session is None else session.epoch
        self._cache = cache
        self.is_follower = is_follower

    @property
    def session(self) -> FetchSession | None:
        """The session, once there is one."""
        return self._session

    @property
    def watcher(self) -> SessionWatcher:
        """Is told of changes while the fetch waits."""
        return self if self._session is None else self._session

    @property
    def is_empty(self) -> bool:
        """Whether nothing is asked for."""
        return self._session is None and not self._asked

    def partitions(self) -> Sequence[FetchPartition]:
        """What is to be read now, in order."""
        return self._asked if self._session is None else self._session.candidates()

    def begin_waiting(self, found: Sequence[FetchPartitionData]) -> None:
        """Be told of changes from now on; what is there already is not forgotten."""
        if self._session is not None:
            return
        self._is_waiting = True
        for asked, result in zip(self._asked, found, strict=True):
            asked.watcher = self
            if asked.partition is not None:
                asked.watch(asked.partition)
            if result.size:
                self.changed[asked] = None

    def finish(
        self, asked: Sequence[FetchPartition], found: Sequence[FetchPartitionData]
    ) -> FetchAnswer:
        """What goes into the response, of what was read for the partitions."""
        if self._session is not None:
            return self._finish_incremental(self._session, asked, found)
        if self._is_waiting:
            for each in self._asked:
                each.stop_watching()
        session_id = NO_SESSION_ID
        if self._cache is not None:
            session_id = self._create_session(self._cache, found)
        return FetchAnswer(session_id, list(zip(asked, found, strict=True)))

    def _create_session(self, cache: FetchSessionCache, found: Sequence[FetchPartitionData]) -> int:
        session = cache.create(
            self._asked,
            is_follower=self.is_follower,
            uses_topic_ids=self._uses_topic_ids,
            now_ms=self._now_ms,
        )
        if session is None:
            return NO_SESSION_ID
        for asked, result in zip(self._asked, found, strict=True):
            session.note(asked, result)
        return session.id

    def _finish_incremental(
        self,
        session: FetchSession,
        asked: Sequence[FetchPartition],
        found: Sequence[FetchPartitionData],
    ) -> FetchAnswer:
        if session.epoch != self._session_epoch:
            error = InvalidFetchSessionEpoch(
                f"session {session.id} was used by another request meanwhile: it is at epoch "
                f"{session.epoch}"
            )
            return FetchAnswer(NO_SESSION_ID, (), error)
        news = [
            (each, result)
            for each, result in zip(asked, found, strict=True)
            if session.note(each, result)
        ]
        return FetchAnswer(session.id, news)


class FetchAnswer(NamedTuple):
    """What a response says: the session, and the partitions in order."""

    session_id: int
    partitions: Sequence[tuple[FetchPartition, FetchPartitionData]]
    error: ApiError | None = None
    """Why the request as a whole failed; then nothing else is in the answer."""
    encoded: list[ResponsePart] | None = None
    """The response itself where `FastFetch` has written it; then nothing else is in the answer."""
