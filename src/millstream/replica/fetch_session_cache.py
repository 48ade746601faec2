"""Which fetch sessions the broker keeps, and what a request's session id and epoch mean.

The Fetch handler calls `FetchSessionCache.open`. There is a fixed number of slots; when they are
taken, a new session gets one of a client that has gone quiet, or of a less valuable one: followers
are worth more than consumers, large sessions more than small ones. A client without a session names
all its partitions each time.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Final, TypeAlias

from millstream.errors import (
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
)
from millstream.replica.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION_ID,
    FetchContext,
    FetchSession,
    next_epoch,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from random import Random

    from millstream.replica.fetch_partition import FetchPartition
    from millstream.types import Uuid

    Worth: TypeAlias = tuple[bool, int, int]

EVICTION_MS: Final = 120_000
"""How long a session may be idle before its slot is free, and how long a young one is protected."""

_SESSION_ID_MAX: Final = (1 << 31) - 1


class FetchSessionCache:
    """All sessions of a broker."""

    def __init__(self, slots: int, random: Random) -> None:
        self._slots = slots
        self._random = random
        # In order of use, the longest idle first.
        self.by_id: dict[int, FetchSession] = {}
        """The sessions; `FastFetch` looks them up here, too."""
        # What may be evicted, the least valuable first: for a follower, and for a consumer.
        self._ranked: dict[int, Worth] = {}
        self._evictable_by_followers: list[Worth] = []
        self._evictable_by_all: list[Worth] = []

    def __len__(self) -> int:
        return len(self.by_id)

    @property
    def partition_count(self) -> int:
        """How many partitions the sessions have in all."""
        return sum(len(session.partitions) for session in self.by_id.values())

    def open(
        self,
        session_id: int,
        epoch: int,
        asked: Sequence[FetchPartition],
        forgotten: Iterable[tuple[str | Uuid, int]] = (),
        *,
        is_follower: bool = False,
        uses_topic_ids: bool = False,
        now_ms: int,
    ) -> FetchContext:
        """What a request asks for, with its session if it has one. Raises what the client gets."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != NO_SESSION_ID:
                self._remove(session_id)
            return FetchContext(
                asked,
                cache=self if epoch == INITIAL_EPOCH else None,
                is_follower=is_follower,
                uses_topic_ids=uses_topic_ids,
                now_ms=now_ms,
            )
        session = self._require(session_id, epoch, uses_topic_ids=uses_topic_ids)
        session.update(asked, forgotten)
        if not session.partitions:
            self._remove(session_id)
            return FetchContext((), is_follower=is_follower)
        session.epoch = next_epoch(session.epoch)
        self.touch(session, now_ms)
        return FetchContext((), session=session, is_follower=is_follower)

    def create(
        self,
        asked: Sequence[FetchPartition],
        *,
        is_follower: bool,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> FetchSession | None:
        """A session for these partitions; None if there is no slot for it, or nothing in it."""
        if not asked:
            return None
        session_id = self._unused_id()
        is_full = len(self.by_id) >= self._slots
        if is_full and not self._evict((is_follower, len(asked), session_id), now_ms):
            return None
        session = FetchSession(
            session_id,
            asked,
            is_follower=is_follower,
            uses_topic_ids=uses_topic_ids,
            now_ms=now_ms,
        )
        self.touch(session, now_ms)
        return session

    def _require(self, session_id: int, epoch: int, *, uses_topic_ids: bool) -> FetchSession:
        session = self.by_id.get(session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"no fetch session has id {session_id}")
        if session.uses_topic_ids != uses_topic_ids:
            raise FetchSessionTopicIdError(
                f"session {session_id} was made with topic "
                f"{'ids' if session.uses_topic_ids else 'names'}"
            )
        if session.epoch != epoch:
            raise InvalidFetchSessionEpoch(
                f"session {session_id} is at epoch {session.epoch}, the request says {epoch}"
            )
        return session

    def touch(self, session: FetchSession, now_ms: int) -> None:
        """A session is used: it is the last that would have to go."""
        session.last_used_ms = now_ms
        self.by_id.pop(session.id, None)
        self.by_id[session.id] = session
        size = len(session.partitions)
        is_established = now_ms - session.created_ms > EVICTION_MS
        if session.ranked_size == size and session.ranked_as_established == is_established:
            return
        self._unrank(session.id)
        session.ranked_size, session.ranked_as_established = size, is_established
        worth = (session.is_follower, size, session.id)
        self._ranked[session.id] = worth
        if is_established or not session.is_follower:
            insort(self._evictable_by_followers, worth)
        if is_established:
            insort(self._evictable_by_all, worth)

    def _evict(self, newcomer: Worth, now_ms: int) -> bool:
        """Make room for a session, if there is one that matters less."""
        oldest = next(iter(self.by_id.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            self._remove(oldest.id)
            return True
        is_follower = newcomer[0]
        evictable = self._evictable_by_followers if is_follower else self._evictable_by_all
        if not evictable or evictable[0] >= newcomer:
            return False
        self._remove(evictable[0][2])
        return True

    def _remove(self, session_id: int) -> None:
        session = self.by_id.pop(session_id, None)
        if session is not None:
            self._unrank(session_id)
            session.close()

    def _unrank(self, session_id: int) -> None:
        worth = self._ranked.pop(session_id, None)
        if worth is None:
            return
        for evictable in (self._evictable_by_followers, self._evictable_by_all):
            place = bisect_left(evictable, worth)
            if evictable[place : place + 1] == [worth]:
                del evictable[place]

    def _unused_id(self) -> int:
        while True:
            session_id = self._random.randint(1, _SESSION_ID_MAX)
            if session_id not in self.by_id:
                return session_id
