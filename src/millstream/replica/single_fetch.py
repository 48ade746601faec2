"""The short way of a fetch: a consumer in a session, one partition that has records for it.

The Fetch handler offers each request of the common shape here first. What is not ordinary gets
None, and then nothing has changed: several partitions that may have news, nothing to read yet,
errors, epochs to check, aborted transactions. Those are for `FetchSessionCache.open` and
`FetchService.fetch`, which have all the rules; what is served here leaves a session as they would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from millstream.replica.fetch_session import next_epoch
from millstream.replica.fetch_target import UNKNOWN

if TYPE_CHECKING:
    from millstream.replica.fetch_session import FetchSession
    from millstream.replica.fetch_session_cache import FetchSessionCache
    from millstream.replica.fetch_target import FetchTarget
    from millstream.storage.log_results import WholeRead

    SingleRequest: TypeAlias = tuple[
        int, int, int, int, int, int, bytes | None, int, int, int, int, int, int
    ]
    """Wait, bytes at least, bytes at most, isolation level, session, its epoch; the partition that
    is named: topic id, index, leader epoch, offset, last epoch, log start, bytes at most. Without a
    topic id none is named."""
    SingleFetched: TypeAlias = tuple[FetchTarget, WholeRead]

_COMMITTED: Final = 1
_ISOLATION_LEVELS: Final = (0, _COMMITTED)


class SingleFetches:
    """Serves the fetches of one partition."""

    __slots__ = ("_bytes_max", "_cache", "_sessions")

    def __init__(self, cache: FetchSessionCache, *, fetch_max_bytes: int) -> None:
        self._cache = cache
        self._sessions = cache.by_id
        self._bytes_max = fetch_max_bytes

    def fetch_one(self, asked: SingleRequest, now_ms: int) -> SingleFetched | None:
        """The partition and what it gives; None if it has to be fetched the long way."""
        (
            _,
            min_bytes,
            max_bytes,
            isolation,
            session_id,
            epoch,
            topic_id,
            index,
            leader_epoch,
            offset,
            last_epoch,
            log_start,
            partition_bytes_max,
        ) = asked
        session = self._sessions.get(session_id)
        if session is None or session.epoch != epoch or isolation not in _ISOLATION_LEVELS:
            return None
        target = _only_target(session, topic_id, index)
        if target is None:
            return None
        if topic_id is None:
            leader_epoch = target.current_leader_epoch
            offset = target.fetch_offset
            last_epoch = target.last_fetched_epoch
            partition_bytes_max = target.partition_max_bytes
        partition = target.partition
        if (
            partition is None
            or not partition.is_leader
            or last_epoch != UNKNOWN
            or (leader_epoch != UNKNOWN and leader_epoch != partition.leader_epoch)
        ):
            return None
        if max_bytes > self._bytes_max:
            max_bytes = self._bytes_max
        found = partition.log.read_whole(
            offset,
            partition_bytes_max if partition_bytes_max < max_bytes else max_bytes,
            is_committed=isolation == _COMMITTED,
        )
        if found is None or (found[2] < min_bytes and found[2] < max_bytes):
            return None
        # From here on it is served.
        if topic_id is not None:
            target.fetch_offset = offset
            target.partition_max_bytes = partition_bytes_max
            target.current_leader_epoch = leader_epoch
            target.last_fetched_epoch = last_epoch
            target.log_start_offset = log_start
        session.epoch = next_epoch(epoch)
        self._cache.touch(session, now_ms)
        session.note_records(target, found[3], found[5])
        return target, found

    def fetch_late(self, asked: SingleRequest) -> SingleFetched | None:
        """The same for a request whose session was opened before it had to wait."""
        session = self._sessions.get(asked[4])
        if session is None or session.epoch != next_epoch(asked[5]):
            return None
        target = _only_target(session, None, 0)
        partition = None if target is None else target.partition
        if (
            target is None
            or partition is None
            or not partition.is_leader
            or target.last_fetched_epoch != UNKNOWN
            or target.current_leader_epoch not in (UNKNOWN, partition.leader_epoch)
        ):
            return None
        max_bytes = min(asked[2], self._bytes_max)
        bytes_max = min(target.partition_max_bytes, max_bytes)
        is_committed = asked[3] == _COMMITTED
        found = partition.log.read_whole(target.fetch_offset, bytes_max, is_committed=is_committed)
        # Who waits for more than a partition may give at a time does not count the rest of a batch.
        enough = min(asked[1], max_bytes)
        if found is None or min(found[2], target.partition_max_bytes) < enough:
            return None
        session.note_records(target, found[3], found[5])
        return target, found


def _only_target(session: FetchSession, topic_id: bytes | None, index: int) -> FetchTarget | None:
    """What the request is about, if nothing else of the session may have news."""
    changed = session.changed
    if session.is_follower or len(changed) > 1 or not session.uses_topic_ids:
        return None
    if topic_id is None:
        return next(iter(changed), None)
    # A `Uuid` equals its bytes, and has their hash.
    target = session.targets.get((topic_id, index))  # type: ignore[arg-type]
    return target if not changed or target in changed else None
