"""A share coordinator with its log in memory."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from millstream.clock import ManualClock
from millstream.coordinator.runtime import CoordinatorRuntime
from millstream.coordinator.share.config import ShareCoordinatorConfig
from millstream.coordinator.share.coordinator import ShareCoordinator
from millstream.coordinator.share.state import ShareKey, StateBatch, StateChange
from millstream.coordinator.share.state_shard import ShareStateShard
from millstream.errors import ApiError
from millstream.protocol.records_framing import SHARE_RECORDS
from millstream.types import Uuid
from tests.unit.coordinator.memory_store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.coordinator.share.state import ShareState

TOPIC = Uuid(b"orders".ljust(16, b"\0"))
KEY = ShareKey("sharers", TOPIC, 0)
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4


class OneTopic:
    """A topic `orders` of three partitions."""

    def topic_name(self, topic_id: Uuid) -> str | None:
        return "orders" if topic_id == TOPIC else None

    def partition_count(self, topic: str) -> int | None:
        return 3


class Pruned:
    """A log that notes what is deleted."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.deleted: list[tuple[int, int]] = []

    def end_offset(self, partition: int) -> int:
        return self._store.bounds(partition, 0).end_offset

    def delete_before(self, partition: int, offset: int) -> None:
        self.deleted.append((partition, offset))


class StateWorld:
    """One partition of the topic of the states."""

    def __init__(self, **settings: Any) -> None:
        self.config = ShareCoordinatorConfig(**settings)
        self.clock = ManualClock()
        self.store = MemoryStore()
        self.log = Pruned(self.store)
        self._deferred: deque[Callable[[], None]] = deque()
        self._epoch = 0
        self.start()

    def start(self) -> None:
        """Coordinate, from what is in the log."""
        self._epoch += 1
        self.runtime: CoordinatorRuntime[ShareStateShard] = CoordinatorRuntime(
            "__share_group_state",
            codec=SHARE_RECORDS,
            make_shard=lambda partition, _: ShareStateShard(
                partition, self.config, OneTopic(), self.log
            ),
            store=self.store,
            partition_count=lambda: 1,
            clock=self.clock,
            defer=self._deferred.append,
            arm=lambda _: None,
            write_timeout_ms=1000,
        )
        self.shares = ShareCoordinator(self.runtime)
        self.runtime.elected(0, self._epoch)
        while self._deferred:
            self._deferred.popleft()()

    def restart(self) -> None:
        """Another broker takes over."""
        self.runtime.close()
        self.start()

    def pass_ms(self, ms: int) -> None:
        """Let time pass."""
        self.clock.advance(ms)
        self.runtime.tick()

    def initialize(
        self, key: ShareKey = KEY, *, epoch: int = 1, offset: int = 0
    ) -> type[ApiError] | None:
        """Begin a share partition; the error, if there is one."""
        answers: list[ApiError | None] = []
        self.shares.initialize(key, epoch, offset, answers.append)
        return _kind(answers)

    def write(
        self,
        *batches: tuple[int, int, int, int],
        key: ShareKey = KEY,
        start: int = -1,
        epoch: int = 1,
        leader: int = 0,
        complete: int = 0,
    ) -> type[ApiError] | None:
        """Keep batches; the error, if there is one."""
        answers: list[ApiError | None] = []
        said = tuple(StateBatch(*each) for each in batches)
        self.shares.write(key, StateChange(epoch, leader, start, complete, said), answers.append)
        return _kind(answers)

    def read(self, key: ShareKey = KEY, *, leader: int = 0) -> ShareState | type[ApiError]:
        """The state, or the error."""
        answers: list[ShareState | ApiError] = []
        self.shares.read(key, leader, answers.append)
        (answer,) = answers
        return type(answer) if isinstance(answer, ApiError) else answer

    def state(self) -> ShareState:
        """What is kept of the share partition that tests are about."""
        (shard,) = self.runtime.shards
        return shard.states[KEY]


def _kind(answers: list[ApiError | None]) -> type[ApiError] | None:
    (answer,) = answers
    return None if answer is None else type(answer)
