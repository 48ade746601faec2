"""A broker that may have few descriptors open, and clients that take all they can."""

from __future__ import annotations

import resource
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.integration.faults.harness import Broker, broker_on, require_calm
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(120)]

LIMIT = 128
"""Of which 16 are kept for files."""
KAFKA_STORAGE_ERROR = 56


def limit_of(broker: Broker) -> int:
    return resource.prlimit(broker.node.pid, resource.RLIMIT_NOFILE)[0]


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux tells another's limits")
def test_a_broker_takes_all_the_descriptors_it_may_have(tmp_path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with broker_on(tmp_path, limit="-S -n 64") as broker:
        assert limit_of(broker) == min(hard, 1 << 20)
        broker.still_serves()
        require_calm(broker.stop())


def test_idle_connections_leave_the_broker_its_files(tmp_path: Path) -> None:
    queue = ("--set", "socket.listen.backlog.size=1000")
    with broker_on(tmp_path, *queue, limit=f"-n {LIMIT}") as broker:
        assert len(broker.said(f"may have {LIMIT} files and sockets", level="WARNING")) == 1
        with broker.client() as client, ExitStack() as idle:
            assert client.create_topic("before") == 0
            assert client.produce("before", b"1")[0] == 0
            for _ in range(2 * LIMIT):
                idle.enter_context(broker.connect())
            until(lambda: broker.said("Few descriptors are left", level="WARNING"))

            for number in range(5):
                assert client.create_topic(f"meanwhile-{number}") == 0
                assert client.produce(f"meanwhile-{number}", b"2") == (0, 0)
            assert client.produce("before", b"2") == (0, 1)

        with broker.client() as late:
            late.socket.settimeout(30)
            assert len(late.topics()) == 6, "who waited is served when others have gone"
        lines = broker.stop()
    require_calm(lines)
    assert len([line for line in lines if "Few descriptors" in line["message"]]) <= 3


def test_more_partitions_than_descriptors_end_in_errors_and_not_the_broker(
    tmp_path: Path,
) -> None:
    with broker_on(tmp_path, limit=f"-n {LIMIT}") as broker:
        with broker.client() as client:
            codes = []
            for number in range(2 * LIMIT):
                assert client.create_topic(f"t-{number}") in (0, KAFKA_STORAGE_ERROR)
                codes.append(client.produce(f"t-{number}", b"1")[0])
            served = {f"t-{n}" for n, code in enumerate(codes) if code == 0}
            assert len(served) > LIMIT // 2
            assert KAFKA_STORAGE_ERROR in codes
        lines = broker.stop()
    assert not [line for line in lines if line["level"] == "CRITICAL" or "traceback" in line]
    assert len([line for line in lines if line["level"] in ("WARNING", "ERROR")]) <= 20

    with broker_on(tmp_path) as broker, broker.client() as client:
        for topic in sorted(served):
            assert client.values(topic) == [b"1"]
