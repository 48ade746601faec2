"""`ShareFetchService`: records for members of share groups, now or when there are some.

The handler of ShareFetch asks. Like a fetch of a consumer it reads what it may and otherwise
waits, for new records or for records that others give back; unlike it, it asks each share
partition which records the member may have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.coordinator.gathering import gather
from millstream.coordinator.share.delivery import AcquireRequest
from millstream.coordinator.share.state import ShareKey
from millstream.errors import ApiError, OffsetNotAvailable
from millstream.replica.purgatory import DelayedOperation
from millstream.server.share_partitions import LedShare
from millstream.server.share_reader import bytes_from, has_records, isolation_of, read_for_share

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from millstream.clock import Clock
    from millstream.coordinator.share.delivery import Acquired
    from millstream.coordinator.share.partition import SharePartition
    from millstream.coordinator.share.sessions import Place, ShareSession
    from millstream.replica.replica_manager import ReplicaManager
    from millstream.server.share_partitions import SharePartitionManager
    from millstream.storage.log.log_results import FetchIsolation

    ShareFetchDone: TypeAlias = Callable[["list[ShareFetched]"], None]

_READS_MAX: Final = 1_000
"""How often a log is read for one answer, at most: withheld records make no answer."""


class ShareFetchParams(NamedTuple):
    """What a ShareFetch request says about itself as a whole."""

    session: ShareSession
    places: Sequence[Place]
    """The partitions, in the order in which they are served."""
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    is_strict: bool = False

    @property
    def group_id(self) -> str:
        """The share group."""
        return self.session.key.group_id


class ShareFetched(NamedTuple):
    """What a member got of one partition."""

    place: Place
    error: ApiError | None = None
    records: bytes = b""
    acquired: Sequence[Acquired] = ()


class DelayedShareFetch(DelayedOperation):
    """A fetch that waits for records that its member may have."""

    __slots__ = ("_done", "_params", "_service")

    def __init__(
        self,
        service: ShareFetchService,
        params: ShareFetchParams,
        done: ShareFetchDone,
        deadline_ms: int,
    ) -> None:
        super().__init__(deadline_ms)
        self._service = service
        self._params = params
        self._done = done

    def is_ready(self) -> bool:
        """Whether there is enough by now, or something that must be answered."""
        return self._service.has_enough(self._params)

    def on_complete(self, *, is_expired: bool) -> None:
        """Answer with what there is."""
        self._done(self._service.collect(self._params))


class DelayedAnswer(DelayedOperation):
    """Waits for nothing but its deadline."""

    __slots__ = ("_done",)

    def __init__(self, deadline_ms: int, done: Callable[[], None]) -> None:
        super().__init__(deadline_ms)
        self._done = done

    def is_ready(self) -> bool:
        """Never."""
        return False

    def on_complete(self, *, is_expired: bool) -> None:
        """Go on."""
        self._done()


class ShareFetchService:
    """The way of a ShareFetch request through share partitions and logs."""

    def __init__(
        self, shares: SharePartitionManager, replicas: ReplicaManager, clock: Clock
    ) -> None:
        self._shares = shares
        self._replicas = replicas
        self._clock = clock

    def fetch(self, params: ShareFetchParams, done: ShareFetchDone) -> None:
        """Get records; `done` may be called before the return."""
        places = params.places
        keys = [ShareKey(params.group_id, *place) for place in places]

        def found(outcomes: list[LedShare | ApiError]) -> None:
            failed = [
                ShareFetched(place, outcome)
                for place, outcome in zip(places, outcomes, strict=True)
                if isinstance(outcome, ApiError) and not isinstance(outcome, OffsetNotAvailable)
            ]
            led = [each for each in outcomes if isinstance(each, LedShare)]
            if failed or not led:
                self._answer_or_pause(failed, params, done)
            else:
                self._fetch(led, params, done)

        gather(keys, self._shares.find, found)

    def pause(self, max_wait_ms: int, done: Callable[[], None]) -> None:
        """Go on after some time, so that who cannot be served does not ask without end."""
        deadline_ms = self._clock.monotonic_ms() + max_wait_ms
        self._replicas.purgatory.watch(DelayedAnswer(deadline_ms, done), ())

    def _answer_or_pause(
        self,
        failed: list[ShareFetched],
        params: ShareFetchParams,
        done: ShareFetchDone,
    ) -> None:
        if failed or params.max_wait_ms <= 0:
            done([*failed, *self.collect(params, {each.place for each in failed})])
        else:
            self.pause(params.max_wait_ms, lambda: done(self.collect(params)))

    def _fetch(
        self,
        led: list[LedShare],
        params: ShareFetchParams,
        done: ShareFetchDone,
    ) -> None:
        if params.max_wait_ms <= 0 or self.has_enough(params):
            fetched = self.collect(params)
            if params.max_wait_ms <= 0 or any(each.acquired or each.error for each in fetched):
                done(fetched)
                return
        deadline_ms = self._clock.monotonic_ms() + params.max_wait_ms
        operation = DelayedShareFetch(self, params, done, deadline_ms)
        keys = [key for each in led for key in (each.partition, each.key)]
        self._replicas.purgatory.watch(operation, [params.session, *keys])

    # What there is.

    def has_enough(self, params: ShareFetchParams) -> bool:
        """Whether a fetch is to be answered: there are records, or a partition is lost."""
        if not self._shares.sessions.is_open(params.session):
            return True
        isolation = isolation_of(self._shares.settings(params.group_id))
        total = 0
        for place in params.places:
            led = self._shares.known(ShareKey(params.group_id, *place))
            if led is None or led.records is None:
                if self._is_lost(place):
                    return True
                continue
            offset = led.records.fetch_offset
            if params.max_bytes <= 0 or offset is None:
                continue
            if has_records(led.partition, offset, isolation):
                if params.min_bytes <= 1:
                    return True
                total += bytes_from(led.partition, offset, isolation)
                if total >= params.min_bytes:
                    return True
        return False

    def _is_lost(self, place: Place) -> bool:
        try:
            self._replicas.partition(*place).require_role(needs_leader=True)
        except ApiError:
            return True
        return False

    def collect(
        self,
        params: ShareFetchParams,
        without: frozenset[Place] | set[Place] = frozenset(),
    ) -> list[ShareFetched]:
        """Take what there is, within the request's limits; nothing for a member that is gone."""
        fetched: list[ShareFetched] = []
        if not self._shares.sessions.is_open(params.session):
            return fetched
        records_max, bytes_max = params.max_records, params.max_bytes
        isolation = isolation_of(self._shares.settings(params.group_id))
        for place in params.places:
            if place in without:
                continue
            if records_max <= 0 or (bytes_max <= 0 and fetched):
                break
            if params.max_bytes <= 0 and not self._is_lost(place):
                continue  # Who has room for nothing gets nothing, not even the first batch.
            led = self._shares.known(ShareKey(params.group_id, *place))
            try:
                if led is None:
                    self._replicas.partition(*place).require_role(needs_leader=True)
                    continue
                request = AcquireRequest(
                    params.session.key.member_id, records_max, params.batch_size, params.is_strict
                )
                one = self._acquire(led, request, bytes_max, isolation, is_first=not fetched)
            except ApiError as error:
                fetched.append(ShareFetched(place, error))
                continue
            if one is not None:
                data, acquired = one
                fetched.append(ShareFetched(place, None, data, acquired))
                records_max -= sum(each.size for each in acquired)
                bytes_max -= len(data)
        return fetched

    def _acquire(
        self,
        led: LedShare,
        request: AcquireRequest,
        bytes_max: int,
        isolation: FetchIsolation,
        *,
        is_first: bool,
    ) -> tuple[bytes, list[Acquired]] | None:
        """Read and acquire until the member has enough of a partition."""
        assert led.records is not None
        parts: list[memoryview] = []
        acquired: list[Acquired] = []
        for _ in range(_READS_MAX):
            offset = led.records.fetch_offset
            if offset is None or not _may_go_on(led.records, offset, request, acquired):
                break
            read = read_for_share(
                led.partition,
                offset,
                bytes_max,
                isolation,
                must_progress=is_first and not acquired,
            )
            if read is None:
                break
            taken = led.records.acquire(request, read.read, self._clock.monotonic_ms())
            if not taken:
                if led.records.fetch_offset == offset:
                    break
                continue
            part = read.bytes_of(taken)
            parts.append(part)
            acquired += taken
            bytes_max -= len(part)
            request = request._replace(
                records_max=request.records_max - sum(each.size for each in taken)
            )
        self._shares.watch(led)
        return (b"".join(parts), acquired) if acquired else None


def _may_go_on(
    records: SharePartition, offset: int, request: AcquireRequest, acquired: list[Acquired]
) -> bool:
    """Whether what can be read next goes well with what was taken.

    Only what comes after it does: a batch must not come twice. And records that were delivered too
    often are delivered alone.
    """
    if request.records_max <= 0:
        return False
    if not acquired:
        return True
    is_next = offset == records.end_offset + 1 and offset > acquired[-1].last_offset
    return is_next and acquired[-1].delivery_count <= records.limits.throttle_count
