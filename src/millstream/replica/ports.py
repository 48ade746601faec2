"""What the replica layer asks of others, stated as protocols.

`storage.UnifiedLog` is a `PartitionLog` and `storage.LogManager` a `LogStore`; `node` brings the
rest. Nothing here does anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

from millstream.storage.log_results import FetchIsolation
from millstream.storage.producer_entry import AppendOrigin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from millstream.errors import ApiError
    from millstream.replica.isr import IsrProposal
    from millstream.storage.config import LogConfig
    from millstream.storage.epoch_cache import EpochEnd
    from millstream.storage.flusher import Completion
    from millstream.storage.log_dir_description import LogDirDescription
    from millstream.storage.log_results import AppendInfo, FetchData, OffsetMetadata
    from millstream.storage.producer_state import ProducerStateManager
    from millstream.storage.time_lookup import TimedRecord
    from millstream.storage.unified_log import UnifiedLog
    from millstream.storage.verification import VerificationGuard
    from millstream.types import ReadableBuffer, TopicPartition, Uuid

    IsrAnswered: TypeAlias = Callable[["IsrAnswer | ApiError"], None]


class PartitionLog(Protocol):
    """What a partition asks of its log, to follow the rules of replication."""

    @property
    def config(self) -> LogConfig:
        """The topic's settings."""
        ...

    @property
    def producers(self) -> ProducerStateManager:
        """What is known about producers."""
        ...

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        ...

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        ...

    @property
    def high_watermark(self) -> int:
        """Everything before it is committed."""
        ...

    @property
    def last_stable_offset(self) -> int:
        """Every transaction before it is decided."""
        ...

    @property
    def recovery_point(self) -> int:
        """Everything before it is on disk."""
        ...

    def append_as_leader(
        self,
        records: ReadableBuffer,
        leader_epoch: int,
        now_ms: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: VerificationGuard | None = None,
        transaction_version: int = 2,
    ) -> AppendInfo:
        """Check, number and write records."""
        ...

    def append_committed(
        self, records: ReadableBuffer, leader_epoch: int, now_ms: int, *, is_own: bool = False
    ) -> int | None:
        """The short way for an ordinary batch and a leader without followers; None if it is not.

        `is_own` says that this broker built the batch, not compressed and with keys.
        """
        ...

    def begin_epoch(self, leader_epoch: int) -> None:
        """This broker leads from now on."""
        ...

    def read(
        self,
        offset: int,
        bytes_max: int,
        isolation: FetchIsolation = FetchIsolation.LOG_END,
        *,
        must_progress: bool = True,
    ) -> FetchData:
        """The records from an offset on."""
        ...

    def locate(self, offset: int) -> OffsetMetadata:
        """Where an offset is in the files."""
        ...

    def offset_for_timestamp(
        self, timestamp: int, isolation: FetchIsolation = FetchIsolation.LOG_END
    ) -> TimedRecord | None:
        """The first record at or after a time, or what a special value names."""
        ...

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """Where an epoch ended."""
        ...

    def raise_high_watermark(self, offset: int) -> bool:
        """Move it up; False if it is there already."""
        ...

    def raise_log_start_offset(self, offset: int) -> bool:
        """Nothing before an offset may be read any more; False if that was so."""
        ...


class LogStore(Protocol):
    """Where the logs of this broker's partitions come from and go to."""

    @property
    def partitions(self) -> list[TopicPartition]:
        """Those that have a log in service."""
        ...

    def get_or_create(
        self,
        partition: TopicPartition,
        topic_id: Uuid | None = None,
        *,
        is_new: bool = False,
        directory_id: Uuid | None = None,
    ) -> UnifiedLog:
        """A partition's log, made if it does not exist yet."""
        ...

    def delete(self, partition: TopicPartition) -> bool:
        """Take a log out of service; its files go later."""
        ...

    def mark_stray(self, partition: TopicPartition) -> None:
        """Put a log aside that this broker should not have."""
        ...

    def commit(self, log: UnifiedLog, offset: int, done: Completion) -> None:
        """Call `done` when everything before an offset is on disk."""
        ...

    def flush(self, log: UnifiedLog) -> None:
        """Sync a log soon, though nobody waits."""
        ...

    def note_error(self, log: UnifiedLog, error: Exception) -> bool:
        """A log's user met an error: whether its directory is out of service now."""
        ...

    def describe(self) -> list[LogDirDescription]:
        """What each directory holds."""
        ...


class BrokerView(Protocol):
    """What the cluster says about brokers: the metadata image answers it."""

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether a broker may join an ISR: unfenced, not on its way down, of this epoch.

        Epoch -1 is of a follower too old to send it, and matches.
        """
        ...

    def is_alive(self, broker_id: int) -> bool:
        """Whether a broker is registered and not fenced."""
        ...

    def rack_of(self, broker_id: int) -> str | None:
        """Where a broker is."""
        ...


class IsrAnswer(Protocol):
    """The controller's word on a partition after AlterPartition."""

    @property
    def leader_epoch(self) -> int:
        """The leader epoch."""
        ...

    @property
    def partition_epoch(self) -> int:
        """The partition epoch."""
        ...

    @property
    def isr(self) -> tuple[int, ...]:
        """The in-sync replicas, decided."""
        ...


class IsrAlterer(Protocol):
    """Carries proposals to the controller, with backoff, and brings its answers."""

    def submit(self, proposal: IsrProposal, done: IsrAnswered) -> None:
        """Ask for another ISR; `done` is called later, on the owner's thread."""
        ...


class TransactionVerifier(Protocol):
    """Asks a transaction's coordinator whether partitions belong to it (KIP-890)."""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        done: Callable[[Mapping[TopicPartition, ApiError]], None],
        *,
        adds_partitions: bool,
    ) -> None:
        """`done` gets an error for each partition that is not in the transaction.

        With `adds_partitions` (Produce 12 and later) they are added to it instead. The errors are
        those for the producer, already mapped.
        """
        ...
