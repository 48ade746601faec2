"""Groups with members of both protocols, who do what clients do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import ApiError
from tests.unit.coordinator.group.consumer.members import Consumer
from tests.unit.coordinator.group.consumer.movers import Mover
from tests.unit.coordinator.group.world import GROUP, World

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.coordinator.group.group import GroupType

ALL = {("orders", 0), ("orders", 1), ("orders", 2)}


def run(world: World, *members: Mover | Consumer, ms: int = 20_000) -> None:
    """Let everybody do what clients do, for a while; no partition is ever with two."""
    for _ in range(ms // 1000):
        for member in members:
            if isinstance(member, Mover):
                member.step()
            else:
                answer = member.beat()
                assert not isinstance(answer, ApiError), repr(answer)
            assert_exclusive(members)
        world.pass_ms(1000)
        assert_exclusive(members)


def assert_exclusive(members: Sequence[Mover | Consumer]) -> None:
    """No partition is with two members."""
    owned = [each for member in members for each in member.owned]
    assert len(owned) == len(set(owned)), owned


def type_of(world: World) -> GroupType:
    """The kind of the group."""
    return world.shard.groups[GROUP].type


def classics(world: World, *names: str, kind: type[Mover] = Mover, **fields: object) -> list[Mover]:
    """A stable classic group."""
    members = [kind(world, name, **fields) for name in names]
    run(world, *members)
    assert set().union(*(each.owned for each in members)) == ALL
    return members


def mixed(world: World, kind: type[Mover] = Mover) -> tuple[Consumer, Mover]:
    """A consumer group with a member of each protocol."""
    one, two = Consumer(world, "one"), kind(world, "two")
    one.join()
    run(world, one, two)
    assert one.owned | two.owned == ALL
    return one, two
