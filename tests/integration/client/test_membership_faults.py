"""Groups whose connections break and whose coordinator errs, from a seed: they find together."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from millstream.client.consumer.membership.events import Assigned
from millstream.testing.embedded import EmbeddedBroker
from tests.integration.client.members import PATIENCE_S, Member

if TYPE_CHECKING:
    from millstream.client.consumer.membership.events import RebalanceEvent
    from millstream.types import TopicPartition

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PARTITIONS = 6
ROUNDS = 12
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "50",
    # A leave request that was lost counts after this long.
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
}
APIS = {
    "classic": ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "FindCoordinator"),
    "consumer": ("ConsumerGroupHeartbeat", "FindCoordinator"),
}
ERRORS = ("NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE")


class Ledger:
    """Who owns what, over all members: nobody may get what another one has not let go of."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owners: dict[TopicPartition, str] = {}
        self.faults: list[str] = []
        self.changed = threading.Condition()

    def note(self, name: str, event: RebalanceEvent) -> None:
        with self._lock:
            for each in event.partitions:
                owner = self._owners.get(each)
                if isinstance(event, Assigned):
                    if owner is not None:
                        self.faults.append(f"{each} goes to {name} and is with {owner}")
                    self._owners[each] = name
                elif owner == name:
                    del self._owners[each]
        with self.changed:
            self.changed.notify_all()

    def forget(self, name: str) -> None:
        with self._lock:
            self._owners = {each: who for each, who in self._owners.items() if who != name}

    def owners(self) -> dict[TopicPartition, str]:
        with self._lock:
            return dict(self._owners)


class Witness(Member):
    """A member that writes into the ledger what it is told, before it goes on."""

    def __init__(self, ledger: Ledger, name: str, address: str, **changes: object) -> None:
        self._ledger = ledger
        self.name = name
        super().__init__(address, "g", **changes)

    def noted(self, event: RebalanceEvent) -> None:
        self._ledger.note(self.name, event)


def disturb(broker: EmbeddedBroker, apis: tuple[str, ...], random: Random) -> None:
    """Something goes wrong once or twice."""
    api = random.choice(apis)
    match random.randrange(4):
        case 0:
            broker.faults.fail(api, random.choice(ERRORS), times=random.randint(1, 3))
        case 1:
            broker.faults.drop(api)
        case 2:
            broker.faults.drop(api, after_handling=True)
        case _:
            broker.disconnect_clients()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("protocol", "assignor"),
    [("classic", "range"), ("classic", "cooperative-sticky"), ("consumer", "range")],
)
def test_no_partition_is_with_two_members_and_all_are_read_in_the_end(
    protocol: str, assignor: str, seed: int
) -> None:
    random = Random(f"{protocol}-{assignor}-{seed}")
    ledger = Ledger()
    assigned_by: dict[str, Any] = (
        {"partition_assignment_strategy": [assignor]}
        if protocol == "classic"
        else {"group_remote_assignor": assignor}
    )
    with EmbeddedBroker(SETTINGS, in_memory=True) as broker, ExitStack() as stack:
        broker.create_topic("t", partitions=PARTITIONS)
        members: list[Witness] = []
        for number in range(ROUNDS):
            if len(members) < 2 or random.random() < 0.6:
                members.append(
                    Witness(
                        ledger,
                        f"m{number}",
                        broker.bootstrap_servers,
                        group_protocol=protocol,
                        **assigned_by,
                        heartbeat_interval_ms=50,
                        session_timeout_ms=6_000,
                    )
                )
                stack.callback(members[-1].close)
                members[-1].subscribe("t")
            else:
                leaving = members.pop(random.randrange(len(members)))
                leaving.close()
                ledger.forget(leaving.name)
            disturb(broker, APIS[protocol], random)
            if random.random() < 0.3:
                wait_until_all_is_read(ledger, members)
        broker.faults.clear()
        wait_until_all_is_read(ledger, members)

    assert ledger.faults == []
    for each in members:
        assert each.errors == []


def wait_until_all_is_read(ledger: Ledger, members: list[Witness]) -> None:
    names = {each.name for each in members}

    def is_settled() -> bool:
        owners = ledger.owners()
        return len(owners) == PARTITIONS and set(owners.values()) <= names

    with ledger.changed:
        assert ledger.changed.wait_for(is_settled, PATIENCE_S), (ledger.owners(), names)
