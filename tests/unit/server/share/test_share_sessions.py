"""Share sessions: how they begin, go on and end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.errors import (
    InvalidRequest,
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
)
from tests.unit.server.share_members import (
    ACCEPT,
    RENEW,
    ShareMember,
    ack_codes,
    acquired,
    codes,
    configure,
    produce,
)

if TYPE_CHECKING:
    from tests.unit.server.harness import Broker

LOCK_MS = 30_000


def test_a_session_remembers_its_partitions(broker: Broker, ann: ShareMember) -> None:
    ann.fetch(0)
    produce(broker, partition=0)
    produce(broker, partition=1)

    assert ann.take() == {0: [(0, 2, 1)]}
    assert ann.take(1, forgotten_topics_data=ann.forget(0)) == {1: [(0, 2, 1)]}
    produce(broker, partition=0)
    assert ann.take() == {}


def test_a_wrong_session_epoch_is_refused(ann: ShareMember) -> None:
    ann.fetch()
    ann.session_epoch = 7

    assert ann.fetch().error_code == InvalidShareSessionEpoch.code


def test_an_unknown_session_is_refused(ann: ShareMember) -> None:
    ann.session_epoch = 3

    assert ann.fetch().error_code == ShareSessionNotFound.code
    assert ann.acknowledge({}, epoch=3).error_code == ShareSessionNotFound.code


def test_a_session_does_not_begin_with_acknowledgements(ann: ShareMember) -> None:
    answer = ann.fetch(acks={0: [(0, 0, [ACCEPT])]})
    assert answer.error_code == InvalidRequest.code

    assert ann.acknowledge({}, epoch=0).error_code == InvalidShareSessionEpoch.code


def test_too_many_sessions_are_refused_after_a_pause(broker: Broker, ann: ShareMember) -> None:
    broker.coordinators.facades.shares.acknowledging.sessions._sessions_max = 0

    call = ann.call_fetch(max_wait_ms=500)

    assert call.is_pending
    broker.pass_time(500)
    assert call.response.error_code == ShareSessionLimitReached.code


def test_the_last_epoch_gives_everything_back(
    broker: Broker,
    ann: ShareMember,
    bob: ShareMember,
) -> None:
    produce(broker)
    ann.take()
    bob.take()

    answer = ann.acknowledge({0: [(0, 0, [ACCEPT])]}, epoch=-1)

    assert codes(answer) == {0: 0}
    assert bob.take() == {0: [(1, 2, 2)]}
    assert ann.acknowledge({}, epoch=-1).error_code == ShareSessionNotFound.code


def test_a_fetch_with_the_last_epoch_brings_no_records(broker: Broker, ann: ShareMember) -> None:
    produce(broker)
    ann.take()
    produce(broker)
    ann.session_epoch = -1

    answer = ann.fetch(acks={0: [(0, 2, [ACCEPT])]})

    assert ack_codes(answer) == {0: 0}
    assert acquired(answer) == {}


def test_a_lost_connection_gives_everything_back(
    broker: Broker,
    ann: ShareMember,
    bob: ShareMember,
) -> None:
    produce(broker)
    ann.take()
    call = bob.call_fetch(max_wait_ms=500)

    broker.coordinators.connection_closed(ann.connection)

    assert acquired(call.response) == {0: [(0, 2, 2)]}


@pytest.mark.parametrize(
    "changes", [{"group_id": ""}, {"member_id": ""}, {"is_renew_ack": True, "max_wait_ms": 1}]
)
def test_requests_that_make_no_sense_are_refused(
    ann: ShareMember, changes: dict[str, object]
) -> None:
    assert ann.fetch(**changes).error_code == InvalidRequest.code


def test_renewing_must_be_announced_and_allowed(broker: Broker, ann: ShareMember) -> None:
    produce(broker)
    ann.take()
    assert ann.acknowledge({0: [(0, 2, [RENEW])]}).error_code == InvalidRequest.code
    configure(broker, ("share.renew.acknowledge.enable", "false"))

    answer = ann.acknowledge({0: [(0, 2, [RENEW])]}, epoch=1, is_renew_ack=True)

    assert answer.error_code == InvalidRequest.code


def test_a_fetch_of_somebody_who_is_gone_takes_no_records(
    broker: Broker, ann: ShareMember, bob: ShareMember
) -> None:
    call = ann.call_fetch(max_wait_ms=500)
    broker.coordinators.connection_closed(ann.connection)
    assert not call.is_pending

    produce(broker)
    broker.settle()

    assert bob.take() == {0: [(0, 2, 1)]}


def test_the_fetch_of_a_session_before_takes_no_records(broker: Broker, ann: ShareMember) -> None:
    call = ann.call_fetch(max_wait_ms=500)
    ann.session_epoch = 0
    ann.fetch()

    produce(broker)
    broker.settle()

    assert acquired(call.response) == {}
    assert ann.take() == {0: [(0, 2, 1)]}
