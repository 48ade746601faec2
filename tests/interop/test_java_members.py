"""Groups in which Java's members and ours understand each other's assignors."""

from __future__ import annotations

import json
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

from millstream.client.consumer.membership.assignors import resolve
from millstream.testing.embedded import EmbeddedBroker
from tests.integration.client.members import Member
from tests.interop.java_client import require_broker_jars

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(240)]

PARTITIONS = 5
JAVA_CLASSES = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return require_broker_jars(tmp_path_factory.mktemp("maven"))


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(in_memory=True) as running:
        running.create_topic("t", partitions=PARTITIONS)
        yield running


class JavaMember:
    """Kafka's VerifiableConsumer, which says on its output what is assigned to it."""

    def __init__(self, jars: Path, address: str, group_id: str, assignor: str) -> None:
        package = "org.apache.kafka.clients.consumer."
        self._process = subprocess.Popen(
            [
                "java",
                "-Xmx256m",
                "-XX:TieredStopAtLevel=1",
                "-cp",
                f"{jars}/*",
                "org.apache.kafka.tools.VerifiableConsumer",
                *("--bootstrap-server", address, "--topic", "t", "--group-id", group_id),
                *("--group-protocol", "classic"),
                *("--assignment-strategy", package + JAVA_CLASSES[assignor]),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._changed = threading.Condition()
        self.owned: set[int] = set()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            partitions = {each["partition"] for each in event.get("partitions", ())}
            with self._changed:
                if event["name"] == "partitions_assigned":
                    self.owned |= partitions
                elif event["name"] == "partitions_revoked":
                    self.owned -= partitions
                self._changed.notify_all()

    def wait_for(self, *counts: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.owned) in counts, 60), self.owned

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._thread.join(30)
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.mark.parametrize("we_lead", [True, False])
@pytest.mark.parametrize("assignor", JAVA_CLASSES)
def test_javas_members_and_ours_share_a_topic(
    broker: EmbeddedBroker, jars: Path, assignor: str, we_lead: bool
) -> None:
    group_id = f"{assignor}-{we_lead}"
    with Member(
        broker.bootstrap_servers,
        group_id,
        group_protocol="classic",
        assignors=resolve([assignor]),
        heartbeat_interval_ms=200,
    ) as ours:
        if we_lead:
            ours.subscribe("t")
            ours.wait_for(PARTITIONS)
        theirs = JavaMember(jars, broker.bootstrap_servers, group_id, assignor)
        try:
            if not we_lead:
                theirs.wait_for(PARTITIONS)
                ours.subscribe("t")
            theirs.wait_for(2, 3)
            ours.wait_until(lambda member: len(member.owned) in (2, 3))
            together = {each.partition for each in ours.owned} | theirs.owned
            assert together == set(range(PARTITIONS))
        finally:
            theirs.stop()
        ours.wait_for(PARTITIONS)
