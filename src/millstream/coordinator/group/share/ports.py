"""What the coordinator of share groups needs from others; `node` brings it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.errors import ApiError


class PartitionEnds(Protocol):
    """Asks the leaders of partitions where these end: for the lag of a group."""

    def end_offset(
        self, topic: str, partition: int, done: Callable[[int | ApiError], None]
    ) -> None:
        """The first offset that consumers may not read yet."""
        ...
