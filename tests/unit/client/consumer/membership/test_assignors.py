"""What Kafka's assignors promise, on groups small enough to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.client.consumer.membership.assignors import (
    ASSIGNORS,
    DEFAULT_ASSIGNORS,
    GroupMember,
    GroupTopics,
    PreviousAssignment,
    resolve,
)
from millstream.client.consumer.membership.assignors.user_data import (
    decode_generation,
    decode_sticky,
    encode_generation,
    encode_sticky,
)
from millstream.errors import InvalidArgument
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable


def partitions(text: str) -> frozenset[TopicPartition]:
    """`"a-0 a-1"`."""
    pairs = (each.rsplit("-", 1) for each in text.split())
    return frozenset(TopicPartition(topic, int(index)) for topic, index in pairs)


def member(name: str, topics: str, *, owned: str = "", **more: object) -> GroupMember:
    return GroupMember(
        name,
        frozenset(topics.split()),
        partitions(owned),
        **more,  # type: ignore[arg-type]  # each test gives what fits
    )


def assign(
    assignor: str,
    members: Iterable[GroupMember],
    racks: dict[str, str] | None = None,
    **counts: int,
) -> dict[str, str]:
    topics = GroupTopics(
        counts,
        {
            TopicPartition(*_pair(partition)): frozenset(where.split())
            for partition, where in (racks or {}).items()
        },
    )
    found = ASSIGNORS[assignor].assign({each.member_id: each for each in members}, topics)
    return {name: " ".join(map(str, sorted(got))) for name, got in found.items()}


def _pair(text: str) -> tuple[str, int]:
    topic, _, index = text.rpartition("-")
    return topic, int(index)


def test_range_gives_neighbours_and_the_first_members_one_more() -> None:
    members = [member("b", "t"), member("a", "t"), member("c", "t")]

    assert assign("range", members, t=7) == {
        "a": "t-0 t-1 t-2",
        "b": "t-3 t-4",
        "c": "t-5 t-6",
    }


def test_range_gives_the_same_numbers_of_topics_of_equal_size() -> None:
    members = [member("a", "x y"), member("b", "x y")]

    assert assign("range", members, x=3, y=3) == {"a": "x-0 x-1 y-0 y-1", "b": "x-2 y-2"}


def test_range_gives_topics_only_to_their_subscribers() -> None:
    members = [member("a", "x"), member("b", "x y")]

    assert assign("range", members, x=2, y=2, z=5) == {"a": "x-0", "b": "x-1 y-0 y-1"}


def test_range_keeps_the_place_of_a_static_member_that_comes_back_under_another_id() -> None:
    before = [member("m-9", "t", instance_id="one"), member("m-1", "t", instance_id="two")]
    after = [member("m-0", "t", instance_id="two"), member("m-9", "t", instance_id="one")]

    assert assign("range", before, t=2) == {"m-9": "t-0", "m-1": "t-1"}
    assert assign("range", after, t=2) == {"m-9": "t-0", "m-0": "t-1"}


def test_range_prefers_members_in_the_rack_of_a_replica() -> None:
    members = [member("a", "t", rack="east"), member("b", "t", rack="west")]
    racks = {"t-0": "west", "t-1": "west", "t-2": "east", "t-3": "east"}

    assert assign("range", members, racks, t=4) == {"a": "t-2 t-3", "b": "t-0 t-1"}


def test_range_keeps_shares_equal_when_all_replicas_are_in_one_rack() -> None:
    members = [member("a", "t", rack="east"), member("b", "t", rack="west")]
    racks = {f"t-{each}": "west" for each in range(3)}

    assert assign("range", members, racks, t=3) == {"a": "t-2", "b": "t-0 t-1"}


def test_range_with_racks_still_gives_equal_numbers_of_topics_that_belong_together() -> None:
    members = [member("a", "x y", rack="east"), member("b", "x y", rack="west")]
    racks = {"x-0": "west", "x-1": "east", "y-0": "west", "y-1": "east west"}

    assert assign("range", members, racks, x=2, y=2) == {"a": "x-1 y-1", "b": "x-0 y-0"}


def test_round_robin_deals_all_topics_as_one_deck() -> None:
    members = [member("a", "x y"), member("b", "x y")]

    assert assign("roundrobin", members, x=3, y=3) == {"a": "x-0 x-2 y-1", "b": "x-1 y-0 y-2"}


def test_round_robin_passes_members_that_are_not_subscribed() -> None:
    members = [member("a", "x"), member("b", "x y")]

    assert assign("roundrobin", members, x=1, y=2, z=9) == {"a": "x-0", "b": "y-0 y-1"}


def test_sticky_moves_only_what_a_new_member_is_due() -> None:
    had = (
        PreviousAssignment(partitions("t-0 t-1 t-2"), 4),
        PreviousAssignment(partitions("t-3 t-4 t-5"), 4),
    )
    members = [
        member("a", "t", user_data=encode_sticky(had[0])),
        member("b", "t", user_data=encode_sticky(had[1])),
        member("c", "t"),
    ]

    assert assign("sticky", members, t=6) == {"a": "t-0 t-1", "b": "t-3 t-4", "c": "t-2 t-5"}


def test_sticky_believes_the_later_generation_when_two_claim_a_partition() -> None:
    members = [
        member("a", "t", user_data=encode_sticky(PreviousAssignment(partitions("t-0"), 2))),
        member("b", "t", user_data=encode_sticky(PreviousAssignment(partitions("t-0"), 3))),
    ]

    assert assign("sticky", members, t=2) == {"a": "t-1", "b": "t-0"}


def test_sticky_believes_nobody_when_two_claim_a_partition_in_one_generation() -> None:
    claim = encode_sticky(PreviousAssignment(partitions("t-1"), 2))
    members = [member("a", "t", user_data=claim), member("b", "t", user_data=claim)]

    assert assign("sticky", members, t=2) == {"a": "t-0", "b": "t-1"}


def test_sticky_fills_near_partitions_first() -> None:
    members = [member("a", "t", rack="east"), member("b", "t", rack="west")]
    racks = {"t-0": "west", "t-1": "south", "t-2": "east", "t-3": "west"}

    assert assign("sticky", members, racks, t=4) == {"a": "t-1 t-2", "b": "t-0 t-3"}


def test_sticky_evens_out_what_different_subscriptions_allow() -> None:
    members = [
        member("a", "x y", user_data=encode_sticky(PreviousAssignment(partitions("x-0 y-0"), 1))),
        member("b", "x"),
    ]

    assert assign("sticky", members, x=2, y=1) == {"a": "x-0 y-0", "b": "x-1"}
    assert assign("sticky", members, x=2, y=2) == {"a": "y-0 y-1", "b": "x-0 x-1"}


def test_cooperative_sticky_leaves_what_moves_unassigned_until_its_owner_let_go() -> None:
    first = [
        member("a", "t", owned="t-0 t-1 t-2 t-3", generation=5),
        member("b", "t", generation=-1),
    ]
    assert assign("cooperative-sticky", first, t=4) == {"a": "t-0 t-1", "b": ""}

    second = [member("a", "t", owned="t-0 t-1", generation=6), member("b", "t", generation=6)]
    assert assign("cooperative-sticky", second, t=4) == {"a": "t-0 t-1", "b": "t-2 t-3"}


def test_cooperative_sticky_takes_the_generation_of_older_members_from_their_user_data() -> None:
    members = [
        member("a", "t", owned="t-0", user_data=encode_generation(2)),
        member("b", "t", owned="t-0", generation=3),
    ]

    # Both say they own it. The older claim is not believed, but its owner has to let go first.
    assert assign("cooperative-sticky", members, t=2) == {"a": "t-1", "b": ""}


def test_user_data_has_the_bytes_of_javas_assignors() -> None:
    previous = PreviousAssignment(partitions("t-1 t-0"), 7)

    encoded = encode_sticky(previous)

    expected = "00000001" + "000174" + "00000002" + "00000000" + "00000001" + "00000007"
    assert encoded.hex() == expected
    assert decode_sticky(encoded) == previous
    assert decode_sticky(encoded[:-4]) == PreviousAssignment(previous.partitions, -1)
    assert encode_generation(9).hex() == "00000009"
    assert decode_generation(b"\0\0\0\x09") == 9


@pytest.mark.parametrize(
    "data",
    [None, b"", b"\xff", b"\x7f\xff\xff\xff", b"\0\0\0\1\0\2\xff\xff\0\0\0\0", b"\0\0\0\1\xff\xff"],
)
def test_nonsense_in_user_data_counts_as_nothing_said(data: bytes | None) -> None:
    assert decode_sticky(data) == PreviousAssignment()
    assert decode_generation(data and data[:3]) == -1


def test_sticky_members_say_nothing_before_their_first_assignment() -> None:
    nothing = PreviousAssignment()

    assert ASSIGNORS["sticky"].user_data(nothing) is None
    assert ASSIGNORS["cooperative-sticky"].user_data(nothing) == b"\xff\xff\xff\xff"
    assert ASSIGNORS["range"].user_data(nothing) is None
    assert ASSIGNORS["roundrobin"].user_data(nothing) is None


def test_assignors_are_found_by_name_and_by_javas_class() -> None:
    assert resolve(["range", "cooperative-sticky"]) == DEFAULT_ASSIGNORS
    (found,) = resolve(["org.apache.kafka.clients.consumer.StickyAssignor"])
    assert found.name == "sticky"


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        (["stickey"], "choose among cooperative-sticky, range, roundrobin, sticky"),
        (["range", "range"], "given twice"),
        ([], "no assignor is given"),
    ],
)
def test_wrong_assignors_are_refused_with_what_there_is(choices: list[str], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        resolve(choices)
