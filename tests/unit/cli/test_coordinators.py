"""Several coordinators: each is asked about what it coordinates, and lists are put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.cli.connection import Address
from millstream.cli.coordinators import CoordinatorKind, Peer, ask_brokers, ask_coordinators
from millstream.cli.group_view import delete_groups, find_groups, list_groups
from millstream.cli.message_session import Session
from millstream.errors import NotCoordinator
from millstream.protocol.messages import (
    ConsumerGroupDescribeRequest,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from millstream.protocol.messages.find_coordinator import Coordinator
from millstream.protocol.messages.metadata import MetadataResponseBroker
from tests.unit.cli.fake_groups import FakeGroup, FakeGroups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.protocol.message import Message

NODES = (1, 2)


class Broker(FakeGroups):
    """One of two, which knows where every group is."""

    def __init__(self, place: dict[str, int]) -> None:
        super().__init__()
        self.place = place

    def _answer(self, request: Message) -> Message:
        match request:
            case MetadataRequest():
                brokers = [MetadataResponseBroker(node_id=n, host="h", port=n) for n in NODES]
                return MetadataResponse(brokers=brokers)
            case FindCoordinatorRequest(coordinator_keys=keys):
                found = [Coordinator(key=key, node_id=self.place[key]) for key in keys]
                return FindCoordinatorResponse(coordinators=found)
        return super()._answer(request)


@pytest.fixture
def brokers() -> dict[int, Broker]:
    """Two of them, with three groups."""
    place = {"a": 2, "b": 1, "c": 2}
    brokers = {node_id: Broker(place) for node_id in NODES}
    for group_id, node_id in place.items():
        brokers[node_id].groups[group_id] = FakeGroup("Consumer")
    return brokers


@pytest.fixture
def session(brokers: dict[int, Broker]) -> Session:
    return Session(
        [Address("h", 1)],
        timeout_ms=1000,
        connect=lambda address, _: brokers[address.port],
        sleep=lambda ms: None,
    )


def test_groups_of_all_brokers_are_one_list(session: Session) -> None:
    assert [(each.group_id, each.coordinator) for each in list_groups(session)] == [
        ("a", 2),
        ("b", 1),
        ("c", 2),
    ]


def test_each_coordinator_is_asked_once_about_its_groups(
    session: Session, brokers: dict[int, Broker]
) -> None:
    found = find_groups(session, ["c", "b", "a", "c"])

    assert [(name, each.coordinator) for name, each in found.items()] == [
        ("c", 2),
        ("b", 1),
        ("a", 2),
    ]
    asked = {
        node_id: [
            each.group_ids
            for each in broker.requests
            if isinstance(each, ConsumerGroupDescribeRequest)
        ]
        for node_id, broker in brokers.items()
    }
    assert asked == {1: [["b"]], 2: [["c", "a"]]}


def test_groups_are_deleted_where_they_are(session: Session, brokers: dict[int, Broker]) -> None:
    assert delete_groups(session, ["a", "b"]) == {"a": None, "b": None}
    assert [list(broker.groups) for broker in brokers.values()] == [[], ["c"]]


def test_a_group_that_moved_is_looked_for_again(
    session: Session, brokers: dict[int, Broker]
) -> None:
    asked = []

    def ask(peer: Peer, some: Sequence[str]) -> dict[str, int]:
        asked.append(peer.node_id)
        if peer.node_id == 1:
            brokers[1].place["b"] = 2
            raise NotCoordinator
        return dict.fromkeys(some, peer.node_id)

    assert ask_coordinators(session, CoordinatorKind.GROUP, ["b"], ask) == {"b": 2}
    assert asked == [1, 2]


def test_nothing_is_asked_about_nothing(session: Session, brokers: dict[int, Broker]) -> None:
    assert find_groups(session, []) == {}
    assert brokers[1].requests == []


def test_every_broker_is_asked_by_its_id(session: Session) -> None:
    assert ask_brokers(session, lambda peer: [peer.node_id]) == [1, 2]
