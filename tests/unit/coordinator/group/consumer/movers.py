"""Classic members that follow real assignments: they may find themselves in a consumer group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import ApiError, class_for_code
from millstream.protocol.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from millstream.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscriptionTopicPartition,
)
from millstream.protocol.records_framing import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from tests.unit.coordinator.group.members import Member

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from millstream.protocol.messages import JoinGroupResponse

Places = set[tuple[str, int]]


def by_topic(places: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Partitions by topic."""
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        found.setdefault(topic, []).append(partition)
    return found


def encoded(places: Iterable[tuple[str, int]]) -> bytes:
    """An assignment as a leader gives it."""
    return encode_assignment(
        ConsumerProtocolAssignment(
            assigned_partitions=[
                ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=partitions)
                for topic, partitions in by_topic(places).items()
            ]
        ),
        3,
    )


def shared_out(
    members: Mapping[str, Places], places: Iterable[tuple[str, int]], *, is_eager: bool
) -> dict[str, Places]:
    """What a leader gives to whom, by what they say they have.

    Among cooperative members what is somebody else's is given to nobody, until it is let go of.
    """
    names, owner = sorted(members), {}
    for name, owned in members.items():
        owner.update(dict.fromkeys(owned, name))
    given: dict[str, Places] = {name: set() for name in names}
    for number, place in enumerate(sorted(places)):
        name = names[number % len(names)]
        if is_eager or owner.get(place, name) == name:
            given[name].add(place)
    return given


class Mover(Member):
    """A client of the classic protocol as clients are: it joins when it must, assigns, lets go."""

    is_eager = True

    def __init__(self, *arguments: object, **fields: object) -> None:
        super().__init__(*arguments, **fields)  # type: ignore[arg-type]  # Handed through.
        self.owned: Places = set()
        self._has_asked = False
        self.errors: list[str] = []
        """What it was refused with, in order."""

    def metadata(self) -> bytes:
        """What it is subscribed to, and what it has."""
        return encode_subscription(
            ConsumerProtocolSubscription(
                topics=list(self.topics),
                owned_partitions=[
                    ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=partitions)
                    for topic, partitions in by_topic(self.owned).items()
                ],
                generation_id=self.generation,
            ),
            3,
        )

    def ask_to_join(self, member_id: str | None = None) -> list[JoinGroupResponse | ApiError]:
        """Send JoinGroup once, and wait for the answer from now on."""
        self._has_asked = True
        return super().ask_to_join(member_id)

    def step(self) -> None:
        """Whatever a client would do next."""
        if self._has_asked and not self.joins:
            return
        joined = self.joins[-1] if self.joins else None
        if joined is None or _code(joined):
            self._rejoin(0 if joined is None else _code(joined))
        elif not isinstance(joined, ApiError):
            self._go_on(joined)

    def _go_on(self, joined: JoinGroupResponse) -> None:
        if not self.syncs:
            self.sync(self._assignments(joined) if joined.members else None)
            return
        synced = self.syncs[-1]
        if _code(synced):
            self._rejoin(_code(synced))
            return
        assert not isinstance(synced, ApiError)
        given = {
            (topic.topic, partition)
            for topic in decode_assignment(synced.assignment).assigned_partitions
            for partition in topic.partitions
        }
        lets_go = not self.is_eager and not self.owned <= given
        self.owned = given
        code = _code(self.heartbeat()[0])
        if code or lets_go:
            self._rejoin(code)

    def _rejoin(self, code: int) -> None:
        if code:
            self.errors.append(class_for_code(code).wire_name)
        if code in (22, 25, 82) or self.is_eager:
            self.owned = set()
        if code == 25:
            self.member_id, self.generation = "", -1
        self.syncs = []
        self.join()

    def _assignments(self, joined: JoinGroupResponse) -> dict[str, bytes]:
        owned: dict[str, Places] = {}
        topics: set[str] = set()
        for member in joined.members:
            said = decode_subscription(member.metadata)
            topics.update(said.topics)
            owned[member.member_id] = {
                (each.topic, partition)
                for each in said.owned_partitions
                for partition in each.partitions
            }
        places = [
            (topic, partition)
            for topic in topics
            for partition in range(self.world.topics.counts.get(topic, 0))
        ]
        given = shared_out(owned, places, is_eager=self.is_eager)
        return {member_id: encoded(each) for member_id, each in given.items()}


class CooperativeMover(Mover):
    """The same, with a cooperative assignor: it keeps what it can while it joins."""

    is_eager = False


def _code(answer: object) -> int:
    code: int = answer.code if isinstance(answer, ApiError) else getattr(answer, "error_code", 0)
    return code
