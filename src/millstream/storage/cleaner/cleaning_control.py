"""What the log manager asks of compaction before it changes a log under it.

`LogManager` calls it, always on the owner's thread; the cleaner implements it. `NoCleaning` stands
in where nothing is compacted: in tools, in tests, with `log.cleaner.enable=false`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from millstream.types import TopicPartition


class CleaningControl(Protocol):
    """How to keep compaction away from a log."""

    def pause(self, partition: TopicPartition) -> None:
        """Abort what is under way and begin nothing until `resume`; pauses are counted.

        It does not wait for a worker. Once it returns, no result of an earlier pass is applied.
        """
        ...

    def resume(self, partition: TopicPartition) -> None:
        """Undo one `pause`."""
        ...

    def forget(self, partition: TopicPartition) -> None:
        """The log is out of service: drop whatever is known about it, pauses too."""
        ...

    def is_busy(self, partition: TopicPartition) -> bool:
        """Whether a worker reads its segments at this moment."""
        ...


class NoCleaning:
    """Nothing is ever compacted."""

    __slots__ = ()

    def pause(self, partition: TopicPartition) -> None:
        """There is nothing to abort."""

    def resume(self, partition: TopicPartition) -> None:
        """There is nothing to resume."""

    def forget(self, partition: TopicPartition) -> None:
        """There is nothing to forget."""

    def is_busy(self, partition: TopicPartition) -> bool:
        """Never."""
        return False
