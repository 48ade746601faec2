"""Members of a process whose interpreter is not theirs for long: C code has it, and keeps it."""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING

import pytest

from millstream import _accel
from tests.integration.client.members import Member
from tests.integration.node.harness import Client, running

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        not _accel.COMPILED or sys.platform != "linux",
        reason="only the compiled selector sends while the interpreter is taken",
    ),
]

SESSION_MS = 1_000
SETTINGS = (
    "group.consumer.min.heartbeat.interval.ms=100",
    "group.consumer.heartbeat.interval.ms=100",
    f"group.consumer.min.session.timeout.ms={SESSION_MS}",
    f"group.consumer.session.timeout.ms={SESSION_MS}",
    f"group.min.session.timeout.ms={SESSION_MS}",
    "group.initial.rebalance.delay.ms=0",
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a broker listens; it has a process of its own, which this one cannot stop."""
    options = [part for each in SETTINGS for part in ("--set", each)]
    with running(tmp_path_factory.mktemp("node"), *options) as node:
        found = node.until_ready()
        with Client(found) as client:
            assert client.create_topic("t", 2) == 0
        yield found


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_heartbeats_leave_while_c_code_holds_the_interpreter(address: str, protocol: str) -> None:
    with Member(
        address,
        f"g-{protocol}",
        group_protocol=protocol,
        heartbeat_interval_ms=100,
        session_timeout_ms=SESSION_MS,
    ) as member:
        member.subscribe("t")
        member.wait_for(2)
        told = len(member.events)

        hold_the_interpreter(3 * SESSION_MS)
        member.refresh_metadata()

        partition = min(member.owned)
        assert member.committed(frozenset({partition})) == {partition: None}
        assert len(member.events) == told


def hold_the_interpreter(duration_ms: int) -> None:
    """No other thread of this process runs Python meanwhile: PyDLL does not let go of the lock."""
    ctypes.PyDLL(None).usleep(duration_ms * 1000)
