"""Which fetcher follows which partition: by leader, and spread over `num.replica.fetchers`.

`ReplicaChanges` says what this broker follows, as the metadata has it; a driver in `node` asks for
the fetchers that have something to send. Nothing here knows an address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.metadata.topics import NO_LEADER
from millstream.replica.replica_fetcher import ReplicaFetcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.clock import Clock
    from millstream.replica.config import ReplicaConfig
    from millstream.replica.followed_partition import FollowState
    from millstream.replica.partition import Partition
    from millstream.replica.ports import LogStore
    from millstream.types import TopicPartition


class ReplicaFetchers:
    """All fetchers of one broker."""

    def __init__(
        self,
        config: ReplicaConfig,
        *,
        broker_id: int,
        store: LogStore,
        clock: Clock,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._config = config
        self._broker_id = broker_id
        self._store = store
        self._clock = clock
        self._broker_epoch = broker_epoch
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._of: dict[TopicPartition, ReplicaFetcher] = {}
        self._is_leaving = False
        self.on_ready: Callable[[], None] = lambda: None
        """Told that some fetcher may have something to send."""

    @property
    def by_key(self) -> Iterable[tuple[tuple[int, int], ReplicaFetcher]]:
        """The fetchers by (leader, index)."""
        return list(self._fetchers.items())

    @property
    def failed_count(self) -> int:
        """How many partitions are given up."""
        return sum(each.failed_count for each in self._fetchers.values())

    def state_of(self, name: TopicPartition) -> FollowState | None:
        """Where a partition stands; None if it is not fetched."""
        fetcher = self._of.get(name)
        return None if fetcher is None else fetcher.state_of(name)

    def follow(self, partition: Partition) -> None:
        """Fetch a partition from its leader; not at all while there is none."""
        name, leader = partition.name, partition.leader_id
        is_lost = leader == NO_LEADER or (self._is_leaving and self._broker_id not in partition.isr)
        if is_lost or leader == self._broker_id or partition.fault is not None:
            self.stop(name)
            return
        fetcher = self._fetcher(leader, name)
        if self._of.get(name) is not fetcher:
            self.stop(name)
            self._of[name] = fetcher
        fetcher.follow(partition)
        self.on_ready()

    def stop(self, name: TopicPartition) -> None:
        """Fetch a partition no longer."""
        fetcher = self._of.pop(name, None)
        if fetcher is not None:
            fetcher.remove(name)

    def leave(self) -> None:
        """This broker is on its way down: what it loses now it does not go after any more."""
        self._is_leaving = True

    def drop_idle(self, key: tuple[int, int]) -> bool:
        """Forget a fetcher that has nothing left to do; whether it had."""
        fetcher = self._fetchers[key]
        if len(fetcher) or fetcher.is_asking:
            return False
        del self._fetchers[key]
        return True

    def _fetcher(self, leader: int, name: TopicPartition) -> ReplicaFetcher:
        key = (leader, _index(name) % self._config.num_replica_fetchers)
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            fetcher = self._fetchers[key] = ReplicaFetcher(
                self._config,
                broker_id=self._broker_id,
                leader_id=leader,
                store=self._store,
                clock=self._clock,
                broker_epoch=self._broker_epoch,
                on_ready=lambda: self.on_ready(),
            )
        return fetcher


def _index(name: TopicPartition) -> int:
    """The same in every process, so that a run can be repeated."""
    return abs(31 * sum(name.topic.encode()) + name.partition)
