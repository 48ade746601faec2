"""`RebalanceListener`: what an application does when partitions come and go.

Called on the thread (or in the task) that polls, inside `poll`, `unsubscribe` or `close`; the group
waits for it. An `AsyncConsumer` takes coroutine functions as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.types import TopicPartition


class RebalanceListener:
    """Override what is of interest. An object with some of these methods does as well."""

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> Any:
        """Partitions were added, and nothing of them was read yet: `seek` works here."""

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> Any:
        """Partitions go to another member when this returns: the last moment to commit."""

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> Any:
        """Partitions are gone already, and others may read them: do not commit."""
        return self.on_partitions_revoked(partitions)


def listener_method(listener: object, name: str) -> Any:
    """A listener's method, if it has it; one without `on_partitions_lost` hears of a revocation."""
    method = getattr(listener, name, None)
    if method is None and name == "on_partitions_lost":
        return getattr(listener, "on_partitions_revoked", None)
    return method
