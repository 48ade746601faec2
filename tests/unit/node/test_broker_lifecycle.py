"""How a broker joins the cluster, stays in it, and leaves."""

from __future__ import annotations

import pytest

from millstream.errors import (
    ApiError,
    BrokerIdNotRegistered,
    DuplicateBrokerRegistration,
    InconsistentClusterId,
    KafkaStorageError,
    NotController,
    StaleBrokerEpoch,
)
from millstream.node.broker_lifecycle import (
    RETRY_MS,
    BrokerIdentity,
    BrokerLifecycleManager,
    BrokerState,
)
from millstream.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from millstream.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from millstream.protocol.notation import VersionRange
from millstream.types import Uuid

INTERVAL_MS = 2000
DIRECTORY = Uuid(bytes([7]) * 16)
EPOCH = 40


class Rig:
    """A broker's life, and what it sends."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.life = BrokerLifecycleManager(
            BrokerIdentity(
                3,
                "cluster",
                Uuid(bytes([9]) * 16),
                [("PLAINTEXT", "localhost", 9092, "PLAINTEXT")],
                {"metadata.version": VersionRange(7, 30)},
                "rack",
                [DIRECTORY],
                17,
            ),
            heartbeat_interval_ms=INTERVAL_MS,
            registration_timeout_ms=60_000,
            is_alone=lambda: self.is_alone,
        )
        self.is_alone = False
        self.life.start(0)

    def take(self) -> object:
        return self.life.take_request(self.now_ms)

    def beat(self) -> BrokerHeartbeatRequest:
        request = self.take()
        assert isinstance(request, BrokerHeartbeatRequest)
        return request

    def answer(self, **fields: object) -> None:
        response = BrokerHeartbeatResponse(**fields)  # type: ignore[arg-type]  # by name
        self.life.heartbeat_answered(response, self.now_ms)

    def register(self, error_code: int = 0) -> None:
        assert isinstance(self.take(), BrokerRegistrationRequest)
        response = BrokerRegistrationResponse(error_code=error_code, broker_epoch=EPOCH)
        self.life.registration_answered(response, self.now_ms)

    def run(self) -> None:
        """Become an unfenced member."""
        self.register()
        self.life.note_metadata_offset(EPOCH, self.now_ms)
        self.life.become_ready(self.now_ms)
        self.beat()
        self.answer(is_caught_up=True, is_fenced=False)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_broker_registers_at_once_with_all_it_is(rig: Rig) -> None:
    request = rig.take()

    assert isinstance(request, BrokerRegistrationRequest)
    assert (request.broker_id, request.cluster_id, request.rack) == (3, "cluster", "rack")
    assert request.log_dirs == [DIRECTORY]
    assert request.previous_broker_epoch == 17
    assert [(each.name, each.port, each.security_protocol) for each in request.listeners] == [
        ("PLAINTEXT", 9092, 0)
    ]
    assert [
        (each.name, each.min_supported_version, each.max_supported_version)
        for each in request.features
    ] == [("metadata.version", 7, 30)]


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_broker_does_not_wait_for_the_room_of_a_controller_that_stops_with_it(
    rig: Rig, is_alone: bool
) -> None:
    rig.run()
    rig.is_alone = is_alone
    rig.life.begin_shutdown(rig.now_ms, is_controlled=True)
    assert rig.beat().want_shut_down

    rig.answer(error_code=KafkaStorageError.code)

    assert rig.life.leaves_without_consent is is_alone
    assert (rig.life.state is BrokerState.SHUTTING_DOWN) is is_alone
    assert (rig.life.next_deadline_ms is None) is is_alone


def test_only_one_request_is_under_way(rig: Rig) -> None:
    assert rig.take() is not None

    assert rig.take() is None
    assert rig.life.next_deadline_ms is None


def test_it_asks_to_be_unfenced_as_soon_as_it_has_seen_its_registration(rig: Rig) -> None:
    rig.life.become_ready(0)
    rig.register()
    assert rig.life.state is BrokerState.RECOVERY
    assert rig.life.next_deadline_ms == INTERVAL_MS

    rig.life.note_metadata_offset(EPOCH, 5)
    rig.now_ms = 5

    request = rig.beat()
    assert (request.broker_epoch, request.current_metadata_offset) == (EPOCH, EPOCH)
    assert (request.want_fence, request.want_shut_down) == (False, False)


def test_metadata_that_was_there_before_the_answer_counts(rig: Rig) -> None:
    rig.life.become_ready(0)
    rig.life.note_metadata_offset(EPOCH + 1, 0)

    rig.register()

    assert rig.life.next_deadline_ms == 0


def test_a_broker_that_is_not_ready_wants_to_stay_fenced(rig: Rig) -> None:
    rig.register()
    rig.now_ms = INTERVAL_MS

    assert rig.beat().want_fence


def test_it_runs_when_it_is_unfenced_and_then_reports_regularly(rig: Rig) -> None:
    rig.run()

    assert rig.life.state is BrokerState.RUNNING
    assert not rig.life.is_fenced
    assert rig.life.next_deadline_ms == INTERVAL_MS


def test_becoming_ready_while_an_answer_is_awaited_is_not_forgotten(rig: Rig) -> None:
    rig.register()
    rig.life.note_metadata_offset(EPOCH, 0)
    rig.beat()

    rig.life.become_ready(0)
    rig.answer(is_fenced=True)

    assert not rig.beat().want_fence


def test_a_running_broker_that_was_fenced_comes_back(rig: Rig) -> None:
    rig.run()
    rig.now_ms = INTERVAL_MS
    rig.beat()

    rig.answer(is_fenced=True)

    assert rig.life.is_fenced
    assert rig.life.next_deadline_ms == INTERVAL_MS + RETRY_MS


def test_an_old_process_of_the_same_broker_is_waited_for(rig: Rig) -> None:
    rig.register(DuplicateBrokerRegistration.code)

    assert rig.life.failure is None
    assert rig.life.next_deadline_ms == RETRY_MS


def test_waiting_for_the_registration_ends(rig: Rig) -> None:
    rig.now_ms = 60_000

    rig.register(DuplicateBrokerRegistration.code)

    assert isinstance(rig.life.failure, DuplicateBrokerRegistration)
    assert rig.life.next_deadline_ms is None


def test_a_registration_that_can_never_succeed_fails_at_once(rig: Rig) -> None:
    rig.register(InconsistentClusterId.code)

    assert isinstance(rig.life.failure, InconsistentClusterId)


def test_a_heartbeat_without_controller_is_repeated_soon(rig: Rig) -> None:
    rig.run()
    rig.now_ms = INTERVAL_MS
    rig.beat()

    rig.answer(error_code=NotController.code)

    assert rig.life.next_deadline_ms == INTERVAL_MS + RETRY_MS
    assert rig.life.failure is None


@pytest.mark.parametrize("error", [StaleBrokerEpoch, BrokerIdNotRegistered])
def test_a_broker_that_the_controller_does_not_know_asks_again(
    rig: Rig, error: type[ApiError]
) -> None:
    rig.run()
    rig.now_ms = INTERVAL_MS
    rig.beat()

    rig.answer(error_code=error.code)

    assert rig.life.failure is None
    assert isinstance(rig.life.refusal, error)
    assert rig.life.next_deadline_ms == 2 * INTERVAL_MS
    rig.now_ms = 2 * INTERVAL_MS
    rig.beat()
    rig.answer()
    assert rig.life.refusal is None


def test_a_failed_directory_is_reported_at_once_and_ever_after(rig: Rig) -> None:
    rig.run()

    rig.life.directories_failed([DIRECTORY], 10)
    rig.now_ms = 10

    assert rig.beat().offline_log_dirs == [DIRECTORY]
    rig.answer(is_fenced=False)
    rig.now_ms = 10 + INTERVAL_MS
    assert rig.beat().offline_log_dirs == [DIRECTORY]


def test_a_failed_directory_is_reported_when_the_controller_has_answered(rig: Rig) -> None:
    rig.run()
    rig.now_ms = INTERVAL_MS
    rig.beat()
    rig.life.directories_failed([DIRECTORY], rig.now_ms)

    rig.answer(is_fenced=False)  # To the heartbeat that did not say it yet.
    assert rig.life.has_unreported_failures
    rig.beat()
    rig.answer(error_code=NotController.code)
    assert rig.life.has_unreported_failures
    rig.now_ms += RETRY_MS
    rig.beat()
    rig.answer(is_fenced=False)

    assert not rig.life.has_unreported_failures


def test_it_leaves_when_the_controller_lets_it(rig: Rig) -> None:
    rig.run()

    rig.life.begin_shutdown(0, is_controlled=True)

    assert rig.beat().want_shut_down
    rig.answer(is_fenced=False)
    rig.beat()  # Right away: the first answer only took the leaderships.
    rig.answer(is_fenced=False)
    assert rig.life.next_deadline_ms == RETRY_MS
    rig.now_ms = RETRY_MS
    rig.beat()
    rig.answer(is_fenced=True, should_shut_down=True)
    assert rig.life.state is BrokerState.SHUTTING_DOWN
    assert rig.life.next_deadline_ms is None


def test_it_leaves_without_asking_if_it_is_told_to_or_was_no_member(rig: Rig) -> None:
    rig.life.begin_shutdown(0, is_controlled=True)
    assert rig.life.state is BrokerState.SHUTTING_DOWN

    member = Rig()
    member.run()
    member.life.begin_shutdown(0, is_controlled=False)
    assert member.life.state is BrokerState.SHUTTING_DOWN


def test_a_controller_that_forgot_the_broker_cannot_keep_it(rig: Rig) -> None:
    rig.run()
    rig.life.begin_shutdown(0, is_controlled=True)
    rig.beat()

    rig.answer(error_code=StaleBrokerEpoch.code)

    assert rig.life.state is BrokerState.SHUTTING_DOWN
    assert rig.life.failure is None


def test_a_controller_in_the_same_process_needs_no_heartbeats(rig: Rig) -> None:
    rig.is_alone = True
    rig.run()
    assert rig.life.next_deadline_ms is None

    rig.is_alone = False
    rig.life.report(rig.now_ms)

    rig.beat()
    rig.answer(is_fenced=False)
    assert rig.life.next_deadline_ms == rig.now_ms + INTERVAL_MS


def test_a_broker_that_is_not_running_does_not_care_who_the_controller_is(rig: Rig) -> None:
    rig.register()
    due_ms = rig.life.next_deadline_ms

    rig.life.report(rig.now_ms + 1)

    assert rig.life.next_deadline_ms == due_ms
