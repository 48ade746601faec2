"""Fetch sessions (KIP-227): the broker remembers what an asker fetches, so both say only changes.

The Fetch handler opens a `FetchContext` with what a request says, `ReplicaManager` reads the
context's targets, and `FetchContext.finish` says what goes into the response. A session is told
which of its partitions have changed (`FetchInterest`), so a consumer of ten thousand quiet
partitions costs no more than one of ten; only followers have all partitions looked at each time,
because each fetch is an acknowledgement. One thread owns it all. Which sessions are kept is decided
in `fetch_session_cache`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.errors import InvalidFetchSessionEpoch
from millstream.replica.fetch_target import FetchInterest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.errors import ApiError
    from millstream.replica.fetch_session_cache import FetchSessionCache
    from millstream.replica.fetch_target import FetchTarget, PartitionFetch
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


class FetchSession(FetchInterest):
    """The partitions that one asker fetches, in the order in which they are served."""

    __slots__ = (
        "_rank",
        "created_ms",
        "epoch",
        "id",
        "is_follower",
        "last_used_ms",
        "ranked_as_established",
        "ranked_size",
        "targets",
        "uses_topic_ids",
    )

    def __init__(
        self,
        session_id: int,
        targets: Iterable[FetchTarget],
        *,
        is_follower: bool,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> None:
        super().__init__()
        self.id = session_id
        self.epoch = next_epoch(INITIAL_EPOCH)
        """What the next request must say."""
        self.is_follower = is_follower
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.ranked_size = 0
        """What the cache went by when it last decided who has to go first: partitions, and age."""
        self.ranked_as_established = False
        self.targets: dict[tuple[str | Uuid, int], FetchTarget] = {}
        self._rank = 0
        self.update(targets, ())

    def update(
        self, asked: Iterable[FetchTarget], forgotten: Iterable[tuple[str | Uuid, int]]
    ) -> None:
        """Take in what an incremental request says."""
        for target in asked:
            known = self.targets.get((target.topic, target.index))
            if known is None:
                self._add(target)
            else:
                known.update(target)
                self.changed[known] = None
        for key in forgotten:
            gone = self.targets.pop(key, None)
            if gone is not None:
                self._remove(gone)

    def candidates(self) -> list[FetchTarget]:
        """What may have something to say, in the session's order."""
        if self.is_follower:
            return sorted(self.targets.values(), key=_rank_of)
        return sorted(self.changed, key=_rank_of) if len(self.changed) > 1 else [*self.changed]

    def settle(self, target: FetchTarget, found: PartitionFetch) -> bool:
        """Note what a partition answers; whether the asker does not know it yet.

        A partition without news is left alone from now on, until it changes.
        """
        has_records = found.records is not None
        is_news = (
            has_records
            or found.high_watermark != target.sent_high_watermark
            or found.log_start_offset != target.sent_log_start_offset
            or found.is_urgent
        )
        # An error comes without watermarks, so that its end is news, whatever it leaves.
        target.sent_high_watermark = found.high_watermark
        target.sent_log_start_offset = found.log_start_offset
        if has_records:
            self._rank += 1
            target.rank = self._rank
        elif not found.is_urgent and not found.is_withheld:
            self.changed.pop(target, None)
        return is_news

    def note_records(self, target: FetchTarget, high_watermark: int, log_start_offset: int) -> None:
        """Note that a partition has given records: what `settle` does with them."""
        target.sent_high_watermark = high_watermark
        target.sent_log_start_offset = log_start_offset
        self._rank += 1
        target.rank = self._rank
        self.changed[target] = None

    def close(self) -> None:
        """Be told nothing more."""
        for target in self.targets.values():
            self._remove(target)
        self.targets.clear()

    def _add(self, target: FetchTarget) -> None:
        self._rank += 1
        target.rank = self._rank
        target.interest = self
        if target.partition is not None:
            target.watch(target.partition)
        self.targets[target.topic, target.index] = target
        self.changed[target] = None

    def _remove(self, target: FetchTarget) -> None:
        target.unwatch()
        target.interest = None
        self.changed.pop(target, None)


def _rank_of(target: FetchTarget) -> int:
    return target.rank


class FetchContext(FetchInterest):
    """One fetch request: what to read for it, and what to answer.

    Without a session it answers everything it was asked, and is its own interest while it waits.
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
        asked: Sequence[FetchTarget],
        *,
        session: FetchSession | None = None,
        cache: FetchSessionCache | None = None,
        is_follower: bool = False,
        uses_topic_ids: bool = False,
        now_ms: int = 0,
    ) -> None:
        """With a `cache` a full fetch becomes a session, if there is room for it."""
        self._now_ms = now_ms
        self.changed = {}
        self._is_waiting = False
        self._uses_topic_ids = uses_topic_ids
        self._asked = asked
        self._session = session
        self._session_epoch = 0 if session is None else session.epoch
        self._cache = cache
        self.is_follower = is_follower

    @property
    def interest(self) -> FetchInterest:
        """Who is told of changes while the fetch waits."""
        return self if self._session is None else self._session

    @property
    def is_empty(self) -> bool:
        """Whether nothing is asked for."""
        return self._session is None and not self._asked

    def targets(self) -> Sequence[FetchTarget]:
        """What is to be read now, in order."""
        return self._asked if self._session is None else self._session.candidates()

    def begin_waiting(self, found: Sequence[PartitionFetch]) -> None:
        """Be told of changes from now on; what is there already is not forgotten."""
        if self._session is not None:
            return
        self._is_waiting = True
        for target, result in zip(self._asked, found, strict=True):
            target.interest = self
            if target.partition is not None:
                target.watch(target.partition)
            if result.size:
                self.changed[target] = None

    def finish(
        self, targets: Sequence[FetchTarget], found: Sequence[PartitionFetch]
    ) -> FetchAnswer:
        """What goes into the response, of what was read for the targets."""
        if self._session is not None:
            return self._finish_incremental(self._session, targets, found)
        if self._is_waiting:
            for target in self._asked:
                target.stop_watching()
        session_id = NO_SESSION_ID
        if self._cache is not None:
            session_id = self._create_session(self._cache, found)
        return FetchAnswer(session_id, list(zip(targets, found, strict=True)))

    def _create_session(self, cache: FetchSessionCache, found: Sequence[PartitionFetch]) -> int:
        session = cache.create(
            self._asked,
            is_follower=self.is_follower,
            uses_topic_ids=self._uses_topic_ids,
            now_ms=self._now_ms,
        )
        if session is None:
            return NO_SESSION_ID
        for target, result in zip(self._asked, found, strict=True):
            session.settle(target, result)
        return session.id

    def _finish_incremental(
        self,
        session: FetchSession,
        targets: Sequence[FetchTarget],
        found: Sequence[PartitionFetch],
    ) -> FetchAnswer:
        if session.epoch != self._session_epoch:
            error = InvalidFetchSessionEpoch(
                f"session {session.id} was used by another request meanwhile: it is at epoch "
                f"{session.epoch}"
            )
            return FetchAnswer(NO_SESSION_ID, (), error)
        news = [
            (target, result)
            for target, result in zip(targets, found, strict=True)
            if session.settle(target, result)
        ]
        return FetchAnswer(session.id, news)


class FetchAnswer(NamedTuple):
    """What a response says: the session, and the partitions in order."""

    session_id: int
    partitions: Sequence[tuple[FetchTarget, PartitionFetch]]
    error: ApiError | None = None
    """Why the request as a whole failed; then nothing else is in the answer."""
