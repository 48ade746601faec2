"""A group coordinator with share groups, and somebody who keeps their state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.coordinator.decision import Caller
from millstream.coordinator.group.coordinator import GroupCoordinator
from millstream.coordinator.group.share.coordinator import ShareGroupCoordinator
from millstream.coordinator.group.share.group import ShareGroup
from millstream.coordinator.group.share.offsets import ShareGroupOffsets
from millstream.coordinator.share.state import StateSummary
from millstream.errors import ApiError, CoordinatorNotAvailable
from millstream.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from tests.unit.coordinator.group.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.coordinator.share.state import ShareKey, ShareState, StateChange

GROUP = "sharers"
CALLER = Caller("client", "/10.0.0.1", 1)
SESSION_MS = 45_000


class States:
    """A share coordinator that agrees, or does not, or not yet."""

    def __init__(self) -> None:
        self.started: dict[ShareKey, tuple[int, int]] = {}
        """State epoch and start offset of what has begun."""
        self.complete: dict[ShareKey, int] = {}
        self.error: ApiError | None = None
        self.holds = False
        self._held: list[Callable[[], None]] = []

    def initialize(
        self,
        key: ShareKey,
        state_epoch: int,
        start_offset: int,
        done: Callable[[ApiError | None], None],
    ) -> None:
        def act() -> None:
            if self.error is None:
                self.started[key] = (state_epoch, start_offset)
            done(self.error)

        if self.holds:
            self._held.append(act)
        else:
            act()

    def go_on(self) -> None:
        """Answer what was held back."""
        held, self._held, self.holds = self._held, [], False
        for act in held:
            act()

    def delete(self, key: ShareKey, done: Callable[[ApiError | None], None]) -> None:
        if self.error is None:
            self.started.pop(key, None)
        done(self.error)

    def summarize(
        self, key: ShareKey, leader_epoch: int, done: Callable[[StateSummary | ApiError], None]
    ) -> None:
        if self.error is not None:
            done(self.error)
            return
        epoch, offset = self.started[key]
        done(StateSummary(epoch, 7, offset, self.complete.get(key, -1)))

    def read(
        self, key: ShareKey, leader_epoch: int, done: Callable[[ShareState | ApiError], None]
    ) -> None:
        raise NotImplementedError

    def write(
        self, key: ShareKey, change: StateChange, done: Callable[[ApiError | None], None]
    ) -> None:
        raise NotImplementedError


class Ends:
    """Every partition ends at 100, or nobody knows."""

    def __init__(self) -> None:
        self.error: ApiError | None = None

    def end_offset(
        self, topic: str, partition: int, done: Callable[[int | ApiError], None]
    ) -> None:
        done(self.error or 100)


class ShareWorld(World):
    """The world of groups, with what share groups need."""

    def __init__(self) -> None:
        self.states = States()
        self.ends = Ends()
        super().__init__()

    def start(self) -> None:
        super().start()
        self.shares = ShareGroupCoordinator(self.runtime, self.states, self.topics)
        self.offsets = ShareGroupOffsets(
            self.runtime, self.shares, self.states, self.topics, self.ends
        )
        self.groups = GroupCoordinator(
            self.runtime, self.config, self.transactions, self.shares.prepare_deletion
        )

    def ask(self, member: str, **fields: Any) -> list[ShareGroupHeartbeatResponse | ApiError]:
        """Send a heartbeat; the answers, of which there is one when it has come."""
        answers: list[ShareGroupHeartbeatResponse | ApiError] = []
        request = ShareGroupHeartbeatRequest(**({"group_id": GROUP, "member_id": member} | fields))
        self.shares.heartbeat(request, CALLER, answers.append)
        return answers

    def beat(self, member: str, epoch: int, topics: list[str] | None = None) -> Any:
        """A heartbeat that is answered at once, with a response."""
        (answer,) = self.ask(member, member_epoch=epoch, subscribed_topic_names=topics)
        assert not isinstance(answer, ApiError), repr(answer)
        return answer

    def join(self, member: str, *topics: str) -> int:
        """Join, for `orders` if no topics are named; the member's epoch."""
        epoch: int = self.beat(member, 0, list(topics or ["orders"])).member_epoch
        return epoch

    def refusal(self, member: str, **fields: Any) -> type[ApiError]:
        """The error that a heartbeat gets."""
        (answer,) = self.ask(member, **fields)
        assert isinstance(answer, ApiError), answer
        return type(answer)

    def group(self, group_id: str = GROUP) -> ShareGroup:
        """A share group."""
        group = self.shard.groups[group_id]
        assert isinstance(group, ShareGroup)
        return group

    def assigned(self, member: str) -> dict[str, list[int]]:
        """What a member may read, by topic name."""
        return {
            str(self.topics.topic_name(topic)): sorted(partitions)
            for topic, partitions in self.group().members[member].assigned.items()
        }


NOT_NOW = CoordinatorNotAvailable("not now")
