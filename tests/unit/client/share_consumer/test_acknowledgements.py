"""Decisions about records on their way to brokers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.client.share_consumer.acknowledgements import (
    AcknowledgeType,
    Range,
    as_acknowledge_type,
    ranges_of,
)
from millstream.client.share_consumer.in_hand import Decided, InHand
from millstream.client.share_consumer.node_session import NodeSession
from millstream.errors import InvalidArgument
from millstream.types import TopicPartition

ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType

SEEN = TopicPartition("t", 0)
WIRE = TopicPartition("staging.t", 0)
ALL_READ: frozenset[tuple[TopicPartition, int]] = frozenset()


def test_offsets_in_a_row_are_one_range_with_one_type_if_all_have_the_same() -> None:
    decisions = {3: 1, 4: 1, 5: 1, 8: 2, 9: 1}

    assert ranges_of(decisions) == [Range(3, 5, [1]), Range(8, 9, [2, 1])]
    assert ranges_of({}) == []


@given(st.dictionaries(st.integers(0, 40), st.integers(0, 4)))
def test_ranges_say_what_was_decided(decisions: dict[int, int]) -> None:
    said: dict[int, int] = {}
    for first, last, types in ranges_of(decisions):
        size = last - first + 1
        said.update(
            zip(range(first, last + 1), types * size if len(types) == 1 else types, strict=True)
        )

    assert said == decisions


def test_a_type_is_given_by_its_name() -> None:
    assert as_acknowledge_type("release") is RELEASE
    assert as_acknowledge_type(REJECT) is REJECT
    with pytest.raises(InvalidArgument, match="one of accept, release, reject, renew, not 'ack'"):
        as_acknowledge_type("ack")


# In hand.


def session() -> NodeSession:
    return NodeSession(1, "g", "m")


def test_silence_accepts_what_was_given() -> None:
    hand, came_in = InHand(), session()
    hand.add(SEEN, came_in, WIRE, [1, 2, 3])

    hand.decide(SEEN, 2, REJECT)

    assert hand.undecided(ALL_READ) == 2
    assert hand.take_decided(accepts_rest=True, unread=ALL_READ) == [
        Decided(came_in, WIRE, {1: ACCEPT, 2: REJECT, 3: ACCEPT})
    ]
    assert hand.take_decided(accepts_rest=True, unread=ALL_READ) == []


def test_without_that_only_what_was_decided_is_told() -> None:
    hand, came_in = InHand(), session()
    hand.add(SEEN, came_in, WIRE, [1, 2])
    hand.decide(SEEN, 1, RELEASE)

    assert hand.take_decided(accepts_rest=False, unread=ALL_READ) == [
        Decided(came_in, WIRE, {1: RELEASE})
    ]
    assert hand.undecided(ALL_READ) == 1


def test_what_a_loop_has_not_got_to_is_not_accepted() -> None:
    hand, came_in = InHand(), session()
    hand.add(SEEN, came_in, WIRE, [1, 2])

    found = hand.take_decided(accepts_rest=True, unread=frozenset({(SEEN, 2)}))

    assert found == [Decided(came_in, WIRE, {1: ACCEPT})]
    assert hand.undecided(ALL_READ) == 1


def test_a_renewed_record_stays_in_hand_until_something_final_is_said() -> None:
    hand, came_in = InHand(), session()
    hand.add(SEEN, came_in, WIRE, [1])
    hand.decide(SEEN, 1, RENEW)

    assert hand.take_decided(accepts_rest=True, unread=ALL_READ) == [
        Decided(came_in, WIRE, {1: RENEW})
    ]
    assert hand.undecided(ALL_READ) == 0
    assert hand.take_decided(accepts_rest=True, unread=ALL_READ) == []
    hand.decide(SEEN, 1, ACCEPT)
    assert hand.take_decided(accepts_rest=False, unread=ALL_READ) == [
        Decided(came_in, WIRE, {1: ACCEPT})
    ]


def test_the_same_partition_in_two_sessions_is_told_to_each() -> None:
    hand, before, after = InHand(), session(), session()
    hand.add(SEEN, before, WIRE, [1])
    hand.add(SEEN, after, WIRE, [1, 2])
    hand.decide(SEEN, 1, REJECT)

    found = hand.take_decided(accepts_rest=True, unread=ALL_READ)

    assert found == [
        Decided(before, WIRE, {1: ACCEPT}),
        Decided(after, WIRE, {1: REJECT, 2: ACCEPT}),
    ]


def test_what_is_not_in_hand_cannot_be_acknowledged() -> None:
    hand = InHand()
    hand.add(SEEN, session(), WIRE, [1])
    hand.take_decided(accepts_rest=True, unread=ALL_READ)

    with pytest.raises(InvalidArgument, match="t-0 at offset 1 is not in hand"):
        hand.decide(SEEN, 1, ACCEPT)


def test_everything_can_be_let_go() -> None:
    hand = InHand()
    hand.add(SEEN, session(), WIRE, [1])

    hand.clear()

    assert hand.undecided(ALL_READ) == 0
