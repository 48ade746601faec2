"""What an active controller keeps outside the log: sessions and deadlines."""

from __future__ import annotations

import pytest

from millstream.config import parse
from millstream.controller.config_schema import ClientMetricsConfig, ConfigSchema
from millstream.controller.periodic import PeriodicTasks
from millstream.controller.sessions import BrokerSessions
from millstream.errors import InvalidRequest
from millstream.metadata.configs import ConfigResource


def test_periodic_tasks_run_when_due_and_those_without_interval_never() -> None:
    tasks = PeriodicTasks({"a": 10, "b": 25, "never": 0}, now_ms=100)

    assert tasks.next_deadline_ms == 110
    assert tasks.take_due(109) == []
    assert tasks.take_due(125) == ["a", "b"]
    assert tasks.next_deadline_ms == 135
    tasks.run_soon("b", 126)
    assert tasks.take_due(126) == ["b"]
    tasks.postpone("never", 0)
    assert tasks.take_due(10**9) == ["a", "b"]
    assert PeriodicTasks({}, 0).next_deadline_ms is None


def test_sessions_that_were_never_heard_of_expire_but_are_not_valid() -> None:
    sessions = BrokerSessions(100)
    sessions.assume(1, 7, now_ms=0, shutdown_offset=None)
    sessions.touch(2, 8, 50, metadata_offset=5)

    assert not sessions.is_valid(1, 7, 10)
    assert sessions.is_valid(2, 8, 149)
    assert not sessions.is_valid(2, 9, 60)
    assert not sessions.is_valid(2, 8, 150)
    assert sessions.expired([1, 2, 3], 150) == [1, 2]
    assert sessions.next_expiry_ms([1, 2]) == 100
    assert sessions.next_expiry_ms([3]) is None
    assert not sessions.all_have_seen_shutdown_of(2, [1])
    assert not sessions.all_have_seen_shutdown_of(3, [])


def test_the_broker_of_the_controllers_own_process_needs_no_session() -> None:
    sessions = BrokerSessions(100, local_id=1)
    sessions.touch(1, 7, 0, metadata_offset=1)
    sessions.touch(2, 8, 0, metadata_offset=5)
    sessions.note_shutdown_offset(2, 5)

    assert sessions.expired([1, 2], 1000) == [2]
    assert sessions.next_expiry_ms([1]) is None
    assert sessions.all_have_seen_shutdown_of(2, [1, 2])


def test_a_schema_knows_its_resources() -> None:
    assert parse(ClientMetricsConfig, {"metrics": "a,b"}).metrics == ("a", "b")
    with pytest.raises(InvalidRequest, match="99"):
        ConfigSchema().check(ConfigResource(99, "x"), {})
    assert ConfigSchema().known_key(99, "x") is None
