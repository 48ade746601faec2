"""What the group coordinator needs from others, stated as protocols; `node` brings it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.coordinator.decision import ProducerStamp
    from millstream.errors import ApiError
    from millstream.types import Uuid


class TopicsView(Protocol):
    """The topics of the cluster: the metadata cache is one."""

    def topic_id(self, name: str) -> Uuid | None:
        """The id of a topic; None if there is no such topic."""
        ...

    def topic_name(self, topic_id: Uuid) -> str | None:
        """The name of a topic; None if there is no such topic."""
        ...

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has; None if there is no such topic."""
        ...


class OffsetsTransactions(Protocol):
    """Asks a transaction's coordinator whether offsets may be written in it (KIP-890)."""

    def verify(
        self,
        transactional_id: str,
        stamp: ProducerStamp,
        group_id: str,
        done: Callable[[ApiError | None], None],
        *,
        adds_partition: bool,
    ) -> None:
        """`done` gets None when the group's offsets partition is in the transaction.

        With `adds_partition` (TxnOffsetCommit 5 and later) it is added to it first. The error is
        the one for the producer, already mapped. The records are appended within `done`.
        """
        ...
