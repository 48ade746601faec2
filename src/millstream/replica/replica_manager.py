"""`ReplicaManager`: everything a broker does with the partitions it holds.

Request handlers append, fetch and ask here; a metadata publisher calls `apply`; the log manager's
failures come in through `fail_directory`; the driver calls `tick` when it is time. One thread owns
it, the one that owns the logs. What cannot be answered at once is answered later through the `done`
a caller hands in, never before the call returns.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from millstream.errors import ApiError, KafkaStorageError
from millstream.replica.append_service import AppendResult, AppendService
from millstream.replica.broker_view import ImageBrokerView
from millstream.replica.change_notifier import ChangeNotifier
from millstream.replica.fast_fetch import make_fast_fetch
from millstream.replica.fetch_service import FetchService
from millstream.replica.fetch_session_cache import FetchSessionCache
from millstream.replica.isr_sender import IsrSender
from millstream.replica.partition import NO_EPOCH
from millstream.replica.partition_reader import end_of_epoch, list_offset
from millstream.replica.partition_table import PartitionTable
from millstream.replica.purgatory import DelayedOperationPurgatory
from millstream.replica.record_deletion import delete_records
from millstream.replica.record_inspection import RecordInspector
from millstream.replica.replica_changes import ReplicaChanges
from millstream.replica.replica_fetchers import ReplicaFetchers
from millstream.replica.transaction_verification import (
    require_one_producer,
    transactional_batches,
    verify,
)
from millstream.storage.log.log_results import FetchIsolation
from millstream.storage.log.producer_entry import AppendOrigin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from random import Random

    from millstream.clock import Clock
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.metadata.topics import TopicsImage
    from millstream.metadata.topics_delta import TopicsDelta
    from millstream.replica.append_service import AppendDone, AppendEntry, ClientEntry
    from millstream.replica.config import ReplicaConfig
    from millstream.replica.fetch_service import FetchDone, FetchParams
    from millstream.replica.fetch_session import FetchAnswer, FetchContext
    from millstream.replica.partition import Partition
    from millstream.replica.ports import (
        Hold,
        IsrAlterer,
        LogStore,
        RunOnWorker,
        TransactionVerifier,
    )
    from millstream.replica.record_deletion import DeleteDone, DeleteResult
    from millstream.replica.replica_selector import ReplicaSelector
    from millstream.replica.transaction_verification import Verification
    from millstream.storage.log.epoch_cache import EpochEnd
    from millstream.storage.log.producer_entry import ProducerEntry
    from millstream.storage.log.time_lookup import TimedRecord
    from millstream.storage.manager.log_dir_description import LogDirDescription
    from millstream.storage.manager.log_registry import DirectoryFailure
    from millstream.types import TopicPartition, Uuid


class ReplicaManager:
    """The replicas of one broker."""

    def __init__(
        self,
        config: ReplicaConfig,
        *,
        broker_id: int,
        store: LogStore,
        cache: KRaftMetadataCache,
        clock: Clock,
        random: Random,
        defer: Callable[[Callable[[], None]], object],
        arm: Callable[[int], object],
        alterer: IsrAlterer,
        broker_epoch: Callable[[], int] = lambda: -1,
        run_on_worker: RunOnWorker | None = None,
        verifier: TransactionVerifier | None = None,
        selector: ReplicaSelector | None = None,
    ) -> None:
        """`defer` is the loop's `call_soon`; `arm` asks for a `tick` at a monotonic time.

        Without `run_on_worker` large batches are unpacked at once.
        """
        self._config = config
        self._store = store
        self._clock = clock
        self._arm = arm
        self._verifier = verifier
        self._isr_check_ms: int | None = None
        self._purgatory = DelayedOperationPurgatory(arm)
        self._notifier = ChangeNotifier(self._purgatory, defer)
        self._table = PartitionTable(cache)
        self._brokers = ImageBrokerView(cache)
        self._isr_sender = IsrSender(alterer, clock)
        self._sessions = FetchSessionCache(config.fetch_session_slots, random)
        self._appends = AppendService(self._table, store, clock, arm)
        self._inspector = run_on_worker and RecordInspector(self._table, clock, run_on_worker)
        self.fast_path = self._appends.make_fast_path()
        """The fast path for the frames of listeners; None where it was not built.

        It serves ordinary requests; the others it declines, and has done nothing then.
        """
        fast_fetch = make_fast_fetch(
            self._sessions, self._purgatory, clock, fetch_max_bytes=config.fetch_max_bytes
        )
        if self.fast_path is not None:
            self.fast_path.reader = fast_fetch
        self._fetches = FetchService(
            self._table,
            self._purgatory,
            self._notifier,
            self._isr_sender,
            clock,
            self._brokers,
            fetch_max_bytes=config.fetch_max_bytes,
            fast_fetch=fast_fetch,
            selector=selector,
            on_storage_error=self._on_storage_error,
        )
        self.fetchers = ReplicaFetchers(
            config, broker_id=broker_id, store=store, clock=clock, broker_epoch=broker_epoch
        )
        """What this broker follows, for a driver that carries the requests."""
        self.changes = ReplicaChanges(
            self._table,
            store,
            self._notifier,
            self._brokers,
            self.fetchers,
            local_id=broker_id,
            lag_time_max_ms=config.replica_lag_time_max_ms,
        )

    # What there is.

    def use_verifier(self, verifier: TransactionVerifier) -> None:
        """Ask for every transaction from now on: coordinators are made after the replicas."""
        self._verifier = verifier

    @property
    def partitions(self) -> Iterable[Partition]:
        """The partitions that this broker has in service."""
        return self._table

    def partition(self, topic: str | Uuid, index: int) -> Partition:
        """One of them; raises what an asker is to be told."""
        return self._table.find(topic, index)

    @property
    def purgatory(self) -> DelayedOperationPurgatory:
        """Where requests wait: those of share groups wait here too, for the same partitions."""
        return self._purgatory

    @property
    def waiting_count(self) -> int:
        """How many requests wait for an answer."""
        return len(self._purgatory) + self._appends.waiting_count

    # Produce.

    def append(
        self,
        entries: Sequence[ClientEntry],
        acks: int,
        timeout_ms: int,
        done: AppendDone,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        allows_internal: bool = False,
        hold: Hold | None = None,
        transactional_id: str | None = None,
        adds_partitions: bool = True,
        transaction_version: int = 2,
    ) -> list[AppendResult] | None:
        """Append a batch to each of several partitions; a result for each, in order.

        An entry is (topic name or id, partition, records). None is returned if the results come
        later, through `done`. The bytes may be changed in place. They are not needed after the
        return, except with a `transactional_id`: then the caller retains them. `adds_partitions`
        is for clients that leave it to the leader to add partitions to a transaction (Produce 12).

        A client's records may take long to unpack, which then happens elsewhere: `hold` is called
        to retain the bytes and to keep requests behind this one waiting, and what it has returned
        when they may go on.
        """
        append = partial(
            self._append,
            acks=acks,
            timeout_ms=timeout_ms,
            done=done,
            origin=origin,
            allows_internal=allows_internal,
            transactional_id=transactional_id,
            adds_partitions=adds_partitions,
            transaction_version=transaction_version,
        )
        if hold is None or self._inspector is None:
            return append(entries)
        inspected, large = self._inspector.inspect(entries)
        if not large:
            return append(inspected)
        release = hold()

        def on_inspected() -> None:
            results = append(inspected)
            release()
            if results is not None:
                done(results)

        self._inspector.inspect_large(inspected, large, on_inspected)
        return None

    def _append(
        self,
        entries: Sequence[AppendEntry],
        acks: int,
        timeout_ms: int,
        done: AppendDone,
        origin: AppendOrigin,
        transactional_id: str | None,
        transaction_version: int,
        *,
        allows_internal: bool,
        adds_partitions: bool,
    ) -> list[AppendResult] | None:
        if transactional_id is not None and self._verifier is not None:
            return self._append_verified(
                entries,
                acks,
                timeout_ms,
                done,
                transactional_id,
                self._verifier,
                adds_partitions=adds_partitions,
            )
        return self._appends.append(
            entries,
            acks,
            timeout_ms,
            done,
            origin=origin,
            allows_internal=allows_internal,
            transaction_version=transaction_version,
        )

    def _append_verified(
        self,
        entries: Sequence[AppendEntry],
        acks: int,
        timeout_ms: int,
        done: AppendDone,
        transactional_id: str,
        verifier: TransactionVerifier,
        *,
        adds_partitions: bool,
    ) -> list[AppendResult] | None:
        batches = transactional_batches(entries)
        try:
            require_one_producer(batches)
        except ApiError as error:
            return [AppendResult(error)] * len(entries)

        def on_verified(verified: Verification) -> None:
            results = self._appends.append(
                entries,
                acks,
                timeout_ms,
                done,
                guards=verified.guards,
                refused=verified.refused,
            )
            if results is not None:
                done(results)

        is_asked = bool(batches) and verify(
            transactional_id,
            entries,
            batches,
            self._table,
            verifier,
            self._clock.wall_ms(),
            on_verified,
            adds_partitions=adds_partitions,
        )
        return None if is_asked else self._appends.append(entries, acks, timeout_ms, done)

    # Fetch.

    @property
    def fetch_sessions(self) -> FetchSessionCache:
        """Where a Fetch handler opens the context of a request."""
        return self._sessions

    def fetch(
        self,
        context: FetchContext,
        params: FetchParams,
        done: FetchDone,
        frame: bytes | None = None,
    ) -> FetchAnswer | None:
        """Read what a fetch asks for; None if the answer comes later, through `done`.

        With the `frame` of the request `FastFetch` may answer it when something has changed.
        """
        return self._fetches.fetch(context, params, done, frame)

    def begin_wait(self, frame: bytes, done: FetchDone) -> bool:
        """Let the fetch in a frame wait, if it is an ordinary one that has nothing to read yet.

        False if `FastFetch` declines it: then nothing has changed, and `fetch` takes it.
        """
        return self._fetches.begin_wait(frame, done)

    # Other questions.

    def list_offset(
        self,
        topic: str,
        index: int,
        timestamp: int,
        isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
        current_leader_epoch: int = NO_EPOCH,
    ) -> TimedRecord:
        """The offset of a time or of a special timestamp (ListOffsets); (-1, -1, -1) if none.

        Raises what the asker gets; OFFSET_NOT_AVAILABLE is LEADER_NOT_AVAILABLE before version 5.
        """
        return self._ask(
            topic,
            index,
            lambda partition: list_offset(partition, timestamp, isolation, current_leader_epoch),
        )

    def end_of_epoch(
        self, topic: str, index: int, leader_epoch: int, current_leader_epoch: int = NO_EPOCH
    ) -> EpochEnd:
        """The largest epoch not above one, and where it ended (OffsetForLeaderEpoch)."""
        return end_of_epoch(self._table.find(topic, index), leader_epoch, current_leader_epoch)

    def delete_records(
        self,
        entries: Sequence[tuple[str, int, int]],
        timeout_ms: int,
        done: DeleteDone,
        *,
        allows_internal: bool = False,
    ) -> list[DeleteResult] | None:
        """Delete what is before an offset in each of (topic, partition, offset); -1 is all.

        None if the results come later, through `done`: when every live replica has followed.
        Topics of the brokers' own are for their coordinators, which say `allows_internal`.
        """
        return delete_records(
            entries,
            self._clock.monotonic_ms() + max(timeout_ms, 0),
            done,
            self._table,
            self._purgatory,
            self._on_storage_error,
            allows_internal=allows_internal,
        )

    def describe_producers(self, topic: str, index: int) -> list[ProducerEntry]:
        """The producers that a partition knows, by id (DescribeProducers)."""
        partition = self._table.find(topic, index)
        partition.require_role(needs_leader=True)
        return [entry for _, entry in sorted(partition.log.producers.producers.items())]

    def describe_log_dirs(self) -> list[LogDirDescription]:
        """What each log directory holds (DescribeLogDirs)."""
        return self._store.describe()

    # Metadata, settings, disks.

    def apply(self, delta: TopicsDelta, image: TopicsImage) -> None:
        """The topics have changed: lead, follow, create and delete as `image` says.

        The cache this manager was made with has the new image already.
        """
        has_followers = self.changes.apply(delta, image, self._clock.monotonic_ms())
        if has_followers and self._isr_check_ms is None:
            self._plan_isr_check()

    def note_topic_config(self, topic: str) -> None:
        """A topic's logs have new settings."""
        for partition in self._table.of_topic(topic):
            partition.note_config()
            partition.advance_high_watermark(self._clock.monotonic_ms())
            partition.changed()

    def note_log_start(self, name: TopicPartition) -> None:
        """Retention has moved the start of a log."""
        partition = self._table.get(name)
        if partition is not None:
            partition.changed()

    def fail_directory(self, failure: DirectoryFailure) -> None:
        """A log directory is out of service: so are its partitions, and who waits for them."""
        for name in failure.partitions:
            self.changes.fail(name, failure.error)

    # Time.

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do, on the monotonic clock; None if never."""
        known = [
            self._purgatory.next_deadline_ms(),
            self._appends.next_deadline_ms(),
            self._isr_check_ms,
        ]
        return min((each for each in known if each is not None), default=None)

    def tick(self) -> None:
        """Answer what has waited long enough, and look for followers that lag."""
        now_ms = self._clock.monotonic_ms()
        self._purgatory.expire(now_ms)
        self._appends.expire(now_ms)
        if self._isr_check_ms is not None and now_ms >= self._isr_check_ms:
            self._isr_check_ms = None
            self._check_isrs(now_ms)
            if any(partition.followers for partition in self._table):
                self._plan_isr_check()

    def stop(self) -> None:
        """Answer everybody who waits; nothing more will come."""
        self._appends.stop()
        self._purgatory.complete_all()

    def _plan_isr_check(self) -> None:
        """Every half of the lag time, as long as this broker leads somebody."""
        half_ms = max(self._config.replica_lag_time_max_ms // 2, 1)
        self._isr_check_ms = self._clock.monotonic_ms() + half_ms
        self._arm(self._isr_check_ms)

    def _check_isrs(self, now_ms: int) -> None:
        for partition in self._table:
            proposal = partition.propose_shrinking(now_ms)
            if proposal is not None:
                self._isr_sender.submit(partition, proposal)

    def _on_storage_error(self, partition: Partition, error: KafkaStorageError) -> None:
        self._store.note_error(partition.log, error)

    def _ask(
        self, topic: str, index: int, question: Callable[[Partition], TimedRecord]
    ) -> TimedRecord:
        partition = self._table.find(topic, index)
        try:
            return question(partition)
        except KafkaStorageError as error:
            if partition.fault is None:
                self._on_storage_error(partition, error)
            raise
