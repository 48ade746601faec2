"""A follower's side of replication: the partitions that are fetched from one leader, over one way.

`ReplicaFetchers` has some for each leader and a driver in `node` carries the requests, one at a
time. A fetcher is told answers and the time; it writes what it gets to the logs as it is, cuts
logs that have parted from the leader's, and decides what to ask next. A partition that fails does
not hold the others up.

             diverging epoch              cut and synced
  FETCHING ------------------> WRITING ------------------> FETCHING
     |  ^                        ^ records of a topic that waits for the disk
     |  | after the back-off     |
     |  +---- BACKING_OFF        | the leader ends before this log, or begins after it
     | error --^                 |
     +-- out of range --> ASKING_END --> ASKING_START --> FETCHING
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from millstream.errors import (
    NO_ERROR,
    ApiError,
    CorruptMessage,
    FencedLeaderEpoch,
    InvalidRecord,
    KafkaStorageError,
    MillstreamError,
    OffsetOutOfRange,
    error_for_code,
)
from millstream.network.client.broker_link import VersionedRequest
from millstream.network.client.fetch_session import SESSION_ERRORS, FetchSession
from millstream.protocol.api import ApiKey
from millstream.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    ReplicaState,
)
from millstream.protocol.messages.list_offsets import ListOffsetsResponse
from millstream.replica.followed_partition import (
    FollowedPartition,
    FollowerFetch,
    FollowState,
    truncation_offset,
)
from millstream.replica.leader_offsets import ask_offsets
from millstream.storage.log.epoch_cache import UNDEFINED_EPOCH, EpochEnd
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.clock import Clock
    from millstream.protocol.message import Message
    from millstream.protocol.messages.fetch import EpochEndOffset, PartitionData
    from millstream.protocol.messages.list_offsets import ListOffsetsPartitionResponse
    from millstream.replica.config import ReplicaConfig
    from millstream.replica.partition import Partition
    from millstream.replica.ports import LogStore
    from millstream.types import ReadableBuffer, Uuid

_logger = logging.getLogger(__name__)

REPLICA_STATE_SINCE: Final = 15
"""The first version of Fetch that says which process of a broker asks."""
DISK_PATIENCE_MS: Final = 20
"""How long the next fetch waits for partitions whose disk is at work; and the longest fetch while
some still are, because they are not in it."""


class ReplicaFetcher:
    """Follows one leader for some of its partitions."""

    def __init__(
        self,
        config: ReplicaConfig,
        *,
        broker_id: int,
        leader_id: int,
        store: LogStore,
        clock: Clock,
        broker_epoch: Callable[[], int],
        on_ready: Callable[[], None],
    ) -> None:
        """`on_ready` hears that `take_request` may have something, besides after an answer."""
        self.leader_id = leader_id
        self.is_asking = False
        """Whether an answer is awaited."""
        self._config = config
        self._broker_id = broker_id
        self._store = store
        self._clock = clock
        self._broker_epoch = broker_epoch
        self._on_ready = on_ready
        self._followed: dict[TopicPartition, FollowedPartition] = {}
        self._by_id: dict[tuple[Uuid, int], FollowedPartition] = {}
        self._session: FetchSession[FollowerFetch] = FetchSession()
        self._backing_off: dict[TopicPartition, FollowedPartition] = {}
        self._asking: dict[TopicPartition, FollowedPartition] = {}
        self._writing: dict[TopicPartition, FollowedPartition] = {}
        self._writing_since_ms = 0
        self._is_failing = False
        self._is_session_stale = False

    # Which partitions.

    def __len__(self) -> int:
        return len(self._followed)

    @property
    def failed_count(self) -> int:
        """How many partitions are given up until the metadata says something new."""
        return sum(each.state is FollowState.FAILED for each in self._followed.values())

    def state_of(self, name: TopicPartition) -> FollowState | None:
        """Where a partition stands; None if it is not fetched here."""
        followed = self._followed.get(name)
        return None if followed is None else followed.state

    def follow(self, partition: Partition) -> None:
        """Fetch a partition, from where its log ends; one that is under way goes on as it is."""
        known = self._followed.get(partition.name)
        if (
            known is not None
            and known.partition is partition
            and known.leader_epoch == partition.leader_epoch
            and known.state is not FollowState.FAILED
        ):
            return
        self.remove(partition.name)
        followed = self._followed[partition.name] = FollowedPartition(partition)
        self._by_id[partition.topic_id, partition.name.partition] = followed
        log = partition.log
        if log.epochs.latest_epoch == UNDEFINED_EPOCH and log.log_end_offset > log.high_watermark:
            # Without epochs nobody can tell where the logs part: only what is committed is sure.
            self._truncate(followed, log.high_watermark)
        else:
            self._go_on(followed)

    def remove(self, name: TopicPartition) -> None:
        """Fetch a partition no longer."""
        followed = self._followed.pop(name, None)
        if followed is not None:
            self._leave(followed)
            del self._by_id[followed.partition.topic_id, name.partition]

    # Asking.

    def take_request(self, now_ms: int) -> VersionedRequest | None:
        """What to ask the leader now; None if there is nothing, or an answer is awaited."""
        if self.is_asking:
            return None
        for each in [each for each in self._backing_off.values() if each.resume_ms <= now_ms]:
            self._go_on(each)
        is_held_up = bool(self._writing) and now_ms < self._writing_since_ms + DISK_PATIENCE_MS
        if self._asking:
            self.is_asking = True
            return ask_offsets(self._broker_id, self._asking)
        is_over = not self._followed and self._session.is_open
        if is_held_up or not (self._session.wanted or is_over):
            return None
        self.is_asking = True
        return self._fetch()

    def next_deadline_ms(self) -> int | None:
        """When `take_request` has something again, if nothing happens; None if never."""
        if self.is_asking:
            return None
        deadlines = [each.resume_ms for each in self._backing_off.values()]
        if self._writing and self._session.wanted:
            deadlines.append(self._writing_since_ms + DISK_PATIENCE_MS)
        return min(deadlines, default=None)

    def _fetch(self) -> VersionedRequest:
        config, epoch = self._config, self._broker_epoch()
        if not self._session.wanted:
            said = self._session.closing_request()
            assert said is not None
        else:
            said = self._session.next_request(by_topic_id=True)
        wait_ms = config.replica_fetch_wait_max_ms if self._session.wanted else 0
        if self._writing:
            wait_ms = min(wait_ms, DISK_PATIENCE_MS)

        def build(version: int) -> FetchRequest:
            is_new = version >= REPLICA_STATE_SINCE
            return FetchRequest(
                replica_id=-1 if is_new else self._broker_id,
                replica_state=ReplicaState(
                    replica_id=self._broker_id if is_new else -1,
                    replica_epoch=epoch if is_new else -1,
                ),
                max_wait_ms=wait_ms,
                min_bytes=config.replica_fetch_min_bytes,
                max_bytes=config.replica_fetch_response_max_bytes,
                session_id=said.session_id,
                session_epoch=said.epoch,
                topics=said.topics(self._ask),
                forgotten_topics_data=said.forgotten(),
            )

        return VersionedRequest(ApiKey.FETCH, build)

    def _ask(self, index: int, fetch: FollowerFetch) -> FetchPartition:
        return FetchPartition(
            partition=index,
            current_leader_epoch=fetch.leader_epoch,
            fetch_offset=fetch.offset,
            last_fetched_epoch=fetch.last_epoch,
            log_start_offset=fetch.log_start_offset,
            partition_max_bytes=self._config.replica_fetch_max_bytes,
        )

    # Being answered.

    def answered(self, answer: Message | MillstreamError, now_ms: int) -> None:
        """The leader's answer to what was asked, or why there is none."""
        self.is_asking = False
        if isinstance(answer, FetchResponse):
            self._take_fetched(answer, now_ms)
        elif isinstance(answer, ListOffsetsResponse):
            for topic in answer.topics:
                for found in topic.partitions:
                    name = TopicPartition(topic.name, found.partition_index)
                    self._take_offset(name, found, now_ms)
        else:
            self._take_failure(answer, now_ms)

    def _take_failure(self, problem: object, now_ms: int) -> None:
        level = logging.DEBUG if self._is_failing else logging.WARNING
        _logger.log(level, "broker %d cannot be followed for now: %s", self.leader_id, problem)
        self._is_failing = True
        self._session.reset()
        for each in [*self._session.wanted, *self._asking]:
            self._back_off(self._followed[each], now_ms)

    def _take_fetched(self, answer: FetchResponse, now_ms: int) -> None:
        if answer.error_code in SESSION_ERRORS:
            self._session.reset()
            return
        if answer.error_code != NO_ERROR:
            self._take_failure(error_for_code(answer.error_code), now_ms)
            return
        self._is_failing = False
        told = self._session.told
        self._session.on_answer(answer.session_id)
        for topic in answer.responses:
            for data in topic.partitions:
                followed = self._by_id.get((topic.topic_id, data.partition_index))
                sent = None if followed is None else told.get(followed.name)
                if followed is not None and sent is not None:
                    self._take_partition(followed, sent, data, now_ms)
        if self._is_session_stale:
            self._is_session_stale = False
            self._session.reset()

    def _take_partition(
        self,
        followed: FollowedPartition,
        sent: FollowerFetch,
        data: PartitionData,
        now_ms: int,
    ) -> None:
        """Use what was found, unless the partition has moved on since it was asked for."""
        if _is_diverging(data.diverging_epoch) or followed.leader_epoch != sent.leader_epoch:
            # The leader has told its watermarks with an answer of which nothing is made. It would
            # not tell them again before they change.
            self._is_session_stale = True
        if (
            followed.state is not FollowState.FETCHING
            or followed.leader_epoch != sent.leader_epoch
            or followed.partition.topic_id != sent.topic_id
        ):
            return
        log = followed.partition.log
        if log.log_end_offset != sent.offset:
            problem = f"it ends at {log.log_end_offset} and was fetched from {sent.offset}"
            self._fail(followed, problem)
            return
        try:
            self._use(followed, data, now_ms)
        except (CorruptMessage, InvalidRecord) as error:
            _logger.warning(
                "%s: what leader %d sent is refused: %s", followed.name, self.leader_id, error
            )
            self._back_off(followed, now_ms)
        except KafkaStorageError as error:
            self._fail(followed, error)
            self._store.note_error(log, error)
        except Exception as error:
            _logger.exception("%s cannot be followed", followed.name)
            self._fail(followed, error)

    def _use(self, followed: FollowedPartition, data: PartitionData, now_ms: int) -> None:
        if data.error_code != NO_ERROR:
            self._take_error(followed, data.error_code, now_ms)
        elif _is_diverging(data.diverging_epoch):
            assert data.diverging_epoch is not None
            end = EpochEnd(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            self._truncate(followed, truncation_offset(followed.partition.log, end))
        else:
            self._append(followed, data)

    def _append(self, followed: FollowedPartition, data: PartitionData) -> None:
        """Write what came, and take over what the leader says about its log."""
        partition, records = followed.partition, data.records
        appended = None
        if records is not None and len(records):
            appended = self._write(followed, records, data.log_start_offset)
        partition.follow_leader(data.high_watermark, data.log_start_offset)
        log = partition.log
        if appended and partition.waits_for_disk:
            self._enter_writing(followed)
            end = log.log_end_offset
            self._store.commit(log, end, lambda error: self._on_written(followed, error))
            return
        if appended and log.wants_flush(self._clock.wall_ms()):
            self._store.flush(log)
        self._session.want(followed.name, followed.fetch())

    def _write(
        self, followed: FollowedPartition, records: ReadableBuffer, leader_start: int
    ) -> bool:
        partition, now_ms = followed.partition, self._clock.wall_ms()
        log = partition.log
        first = int.from_bytes(bytes(memoryview(records)[:8]), "big", signed=True)
        if first < log.log_end_offset == log.log_start_offset:
            # The leader's log begins within a batch, which comes whole, and there is nothing here.
            self._store.truncate_fully_and_start_at(partition.name, first, leader_start)
        return log.append_as_follower(records, followed.leader_epoch, now_ms) is not None

    def _take_error(self, followed: FollowedPartition, code: int, now_ms: int) -> None:
        error = error_for_code(code)
        if code == OffsetOutOfRange.code:
            self._leave(followed)
            followed.state = FollowState.ASKING_END
            self._asking[followed.name] = followed
        elif (
            code == FencedLeaderEpoch.code
            and followed.partition.leader_epoch == followed.leader_epoch
        ):
            self._fail(followed, f"leader epoch {followed.leader_epoch} is over")
        else:
            _logger.info("%s: leader %d answers %s", followed.name, self.leader_id, error)
            self._back_off(followed, now_ms)

    def _take_offset(
        self, name: TopicPartition, found: ListOffsetsPartitionResponse, now_ms: int
    ) -> None:
        """Where the leader's log ends or begins, of one in which our end is out of range."""
        followed = self._asking.get(name)
        if followed is None:
            return
        if found.error_code != NO_ERROR:
            self._take_error(followed, found.error_code, now_ms)
            return
        end = followed.partition.log.log_end_offset
        if followed.state is FollowState.ASKING_END:
            if found.offset < end:
                _logger.warning(
                    "%s ends at %d, its leader at %d: the rest is cut", name, end, found.offset
                )
                self._truncate(followed, found.offset)
            else:
                followed.state = FollowState.ASKING_START
        elif found.offset > end:
            _logger.warning(
                "%s ends at %d, its leader begins at %d: it begins anew", name, end, found.offset
            )
            self._restart(followed, found.offset)
        else:
            self._go_on(followed)

    # The disk.

    def _truncate(self, followed: FollowedPartition, offset: int) -> None:
        log = followed.partition.log
        if offset < log.high_watermark:
            _logger.warning(
                "%s is cut to %d, below its high watermark %d",
                followed.name,
                offset,
                log.high_watermark,
            )
        elif offset < log.log_end_offset:
            _logger.info("%s is cut from %d to %d", followed.name, log.log_end_offset, offset)
        self._enter_writing(followed)
        self._store.truncate(followed.name, offset, lambda error: self._on_written(followed, error))

    def _restart(self, followed: FollowedPartition, offset: int) -> None:
        self._enter_writing(followed)
        self._store.restart(followed.name, offset, lambda error: self._on_written(followed, error))

    def _enter_writing(self, followed: FollowedPartition) -> None:
        self._leave(followed)
        if not self._writing:
            self._writing_since_ms = self._clock.monotonic_ms()
        followed.state = FollowState.WRITING
        self._writing[followed.name] = followed

    def _on_written(self, followed: FollowedPartition, error: ApiError | None) -> None:
        if self._writing.get(followed.name) is not followed:
            return
        if error is not None:
            self._fail(followed, error)
        else:
            self._go_on(followed)
        self._on_ready()

    # States.

    def _leave(self, followed: FollowedPartition) -> None:
        name = followed.name
        self._session.forget(name)
        for each in (self._backing_off, self._asking, self._writing):
            if each.get(name) is followed:
                del each[name]

    def _go_on(self, followed: FollowedPartition) -> None:
        self._leave(followed)
        followed.state = FollowState.FETCHING
        self._session.want(followed.name, followed.fetch())

    def _back_off(self, followed: FollowedPartition, now_ms: int) -> None:
        self._leave(followed)
        followed.state = FollowState.BACKING_OFF
        followed.resume_ms = now_ms + self._config.replica_fetch_backoff_ms
        self._backing_off[followed.name] = followed

    def _fail(self, followed: FollowedPartition, problem: object) -> None:
        """Give a partition up until the metadata says something new about it."""
        _logger.error("%s is not followed any more: %s", followed.name, problem)
        self._leave(followed)
        followed.state = FollowState.FAILED


def _is_diverging(end: EpochEndOffset | None) -> bool:
    """An answer without divergence has the field, too, with nothing in it."""
    return end is not None and (end.epoch >= 0 or end.end_offset >= 0)
