"""What the replica layer asks of others, stated as protocols.

`storage.LogManager` is a `LogStore`; `node` brings the rest. Nothing here does anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from millstream.errors import ApiError
    from millstream.replica.isr import IsrProposal
    from millstream.storage.log.unified_log import UnifiedLog
    from millstream.storage.log.validator import Inspected
    from millstream.storage.manager.flusher import Completion
    from millstream.storage.manager.log_dir_description import LogDirDescription
    from millstream.types import TopicPartition, Uuid

    Unpacked: TypeAlias = "Inspected | Exception"
    RunOnWorker: TypeAlias = Callable[[Callable[[], "Inspected"], Callable[[Unpacked], None]], None]
    """Runs the first on another thread, then the second with what came of it on the loop's."""
    Hold: TypeAlias = Callable[[], Callable[[], None]]
    """Keeps a request's bytes and the requests behind it; the result lets those go on."""
    IsrAnswered: TypeAlias = Callable[["IsrAnswer | ApiError"], None]


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

    def truncate(self, partition: TopicPartition, offset: int, done: Completion) -> None:
        """Cut a log; `done` is called later, when that is on disk and the log may grow again."""
        ...

    def restart(self, partition: TopicPartition, offset: int, done: Completion) -> None:
        """Drop every record of a log and go on at an offset; `done` as with `truncate`."""
        ...

    def truncate_fully_and_start_at(
        self, partition: TopicPartition, offset: int, log_start_offset: int | None = None
    ) -> None:
        """The same at once."""
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

    def epoch_of(self, broker_id: int) -> int:
        """The epoch that a broker which is alive is registered with; -1 if there is none."""
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
