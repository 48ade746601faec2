"""A group of librdkafka moves, member by member, to the consumer protocol and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.protocol.messages import ListGroupsRequest, ListGroupsResponse
from tests.integration.coordinator.test_librdkafka_groups import (
    CLASSIC,
    PARTITIONS,
    Members,
    produce,
)
from tests.integration.node.harness import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(240)]

CONSUMER = {"group.protocol": "consumer"}


class Company(Members):
    """Members of any protocol, and who of them has which partition."""

    def __init__(self, broker: str, group: str, topic: str) -> None:
        super().__init__(broker, group, topic)
        self.group = group
        self.topic = topic
        self._owners: dict[int, Any] = {}

    def add(self, **settings: Any) -> Any:
        member = super().add(**settings)

        def assigned(_: Any, partitions: list[Any]) -> None:
            for each in partitions:
                assert each.partition not in self._owners, "it is still with somebody else"
                self._owners[each.partition] = member

        def revoked(_: Any, partitions: list[Any]) -> None:
            for each in partitions:
                if self._owners.get(each.partition) is member:
                    del self._owners[each.partition]

        member.subscribe([self.topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
        return member

    def replace_each(self, **settings: Any) -> None:
        """One by one, a new member comes and an old one goes."""
        for old in list(self.live):
            self.add(**settings)
            self.until(self.is_settled)
            self.remove(old)
            self.until(self.is_settled)

    def commit(self) -> None:
        """Everybody commits what it has read."""
        for member in self.live:
            member.commit(asynchronous=False)


@pytest.fixture
def company(broker: str, topic: str, new_name: Callable[[str], str]) -> Iterator[Company]:
    made = Company(broker, new_name("group"), topic)
    yield made
    made.close()


def type_of(broker: str, group: str) -> str:
    """What kind of group it is, as the broker lists it."""
    with Client(broker) as client:
        answer = client.ask(ListGroupsRequest(), 5, ListGroupsResponse)
    return next(each.group_type for each in answer.groups if each.group_id == group)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_rolls_to_the_consumer_protocol_and_back(
    broker: str, company: Company, strategy: str
) -> None:
    classic = {**CLASSIC, "partition.assignment.strategy": strategy}
    company.add(**classic)
    company.add(**classic)
    company.until(company.is_settled)
    produce(broker, company.topic, [b"early"] * 40 * PARTITIONS)
    company.until(lambda: len(company.values) == 40 * PARTITIONS)
    company.commit()
    assert type_of(broker, company.group) == "classic"

    company.replace_each(**CONSUMER)
    assert type_of(broker, company.group) == "consumer"
    produce(broker, company.topic, [b"later"] * 10 * PARTITIONS)
    company.until(lambda: company.values.count(b"later") == 10 * PARTITIONS)
    company.commit()

    company.replace_each(**classic)
    assert type_of(broker, company.group) == "classic"
    produce(broker, company.topic, [b"last"] * 10 * PARTITIONS)
    company.until(lambda: company.values.count(b"last") == 10 * PARTITIONS)
    assert len(company.values) == 60 * PARTITIONS, "what was committed is not read again"
