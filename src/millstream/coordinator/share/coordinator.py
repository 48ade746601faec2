"""`ShareCoordinator`: the states of share partitions that this broker coordinates.

Request handlers, and through `ShareStateStore` the leaders and the group coordinator of the same
broker, call it. Each call is about one share partition; answers come through `done`, perhaps
before the call returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.coordinator.runtime import CoordinatorRuntime
    from millstream.coordinator.share.state import (
        ShareKey,
        ShareState,
        StateChange,
        StateSummary,
    )
    from millstream.coordinator.share.state_shard import ShareStateShard
    from millstream.errors import ApiError


class ShareCoordinator:
    """A `ShareStateStore` of what this broker coordinates."""

    def __init__(self, runtime: CoordinatorRuntime[ShareStateShard]) -> None:
        self._runtime = runtime

    def initialize(
        self,
        key: ShareKey,
        state_epoch: int,
        start_offset: int,
        done: Callable[[ApiError | None], None],
    ) -> None:
        """Begin a share partition, or begin it anew."""
        problem = _problem(key)
        if problem is not None:
            done(problem)
            return
        self._runtime.write(
            key.text,
            lambda shard, now: shard.initialize(key, state_epoch, start_offset, now),
            done,
        )

    def read(
        self, key: ShareKey, leader_epoch: int, done: Callable[[ShareState | ApiError], None]
    ) -> None:
        """What is known, for the broker that leads the partition."""
        problem = _problem(key)
        if problem is not None:
            done(problem)
            return
        self._runtime.write(key.text, lambda shard, now: shard.read(key, leader_epoch, now), done)

    def write(
        self, key: ShareKey, change: StateChange, done: Callable[[ApiError | None], None]
    ) -> None:
        """Keep what the leader says."""
        problem = _problem(key)
        if problem is not None:
            done(problem)
            return
        self._runtime.write(key.text, lambda shard, now: shard.write(key, change, now), done)

    def delete(self, key: ShareKey, done: Callable[[ApiError | None], None]) -> None:
        """Forget a share partition."""
        problem = _problem(key)
        if problem is not None:
            done(problem)
            return
        self._runtime.write(key.text, lambda shard, _: shard.delete(key), done)

    def summarize(
        self, key: ShareKey, leader_epoch: int, done: Callable[[StateSummary | ApiError], None]
    ) -> None:
        """How far a share partition has come."""
        problem = _problem(key)
        if problem is not None:
            done(problem)
            return
        self._runtime.read(key.text, lambda shard, _: shard.summarize(key, leader_epoch), done)


def _problem(key: ShareKey) -> ApiError | None:
    if not key.group_id:
        return InvalidRequest("the group id is empty")
    if key.partition < 0:
        return InvalidRequest(f"{key.partition} is no partition")
    return None
