"""How a broker joins the cluster, stays in it, and leaves: a state machine that is told the time.

`BrokerServer` sends the requests it decides on and brings the answers. Nothing waits for a timer
that need not: the broker registers at once, asks to be unfenced as soon as it has seen its own
registration, and leaves as soon as the controller lets it. In between it sends a heartbeat every
`broker.heartbeat.interval.ms`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from millstream.errors import (
    NO_ERROR,
    ApiError,
    BrokerIdNotRegistered,
    DuplicateBrokerRegistration,
    KafkaStorageError,
    StaleBrokerEpoch,
    error_for_code,
)
from millstream.metadata.features import REGISTERED_FEATURES
from millstream.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from millstream.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from millstream.network.endpoint import Endpoint
    from millstream.node.config import ProcessConfig
    from millstream.protocol.message import Message
    from millstream.protocol.messages.broker_heartbeat import BrokerHeartbeatResponse
    from millstream.protocol.messages.broker_registration import BrokerRegistrationResponse
    from millstream.protocol.notation import VersionRange
    from millstream.storage.manager.log_manager import LogManager
    from millstream.types import Uuid

RETRY_MS: Final = 100
"""How long to wait after an answer that says to try again."""

PROTOCOL_IDS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
"""The numbers of the security protocols in registrations."""


class BrokerState(Enum):
    """Where a broker stands, by its own knowledge."""

    STARTING = "starting"
    """Not registered yet."""
    RECOVERY = "recovery"
    """Registered; not serving yet."""
    RUNNING = "running"
    """Unfenced at least once."""
    PENDING_CONTROLLED_SHUTDOWN = "pending controlled shutdown"
    """Waits for the controller to take its leaderships away."""
    SHUTTING_DOWN = "shutting down"
    """Free to stop."""


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """What a broker registers with."""

    broker_id: int
    cluster_id: str
    incarnation_id: Uuid
    listeners: Sequence[tuple[str, str, int, str]]
    """Name, host, port and protocol of each advertised listener."""
    features: Mapping[str, VersionRange]
    rack: str | None
    directories: Sequence[Uuid]
    previous_broker_epoch: int = -1


def broker_identity(
    process: ProcessConfig,
    cluster_id: str,
    incarnation_id: Uuid,
    advertised: Iterable[Endpoint],
    logs: LogManager,
) -> BrokerIdentity:
    """What this process registers with, now that it has its directories."""
    previous_epoch = logs.previous_broker_epoch
    return BrokerIdentity(
        process.node_id,
        cluster_id,
        incarnation_id,
        [
            (each.listener_name, each.host, each.port, each.security_protocol.value)
            for each in advertised
        ],
        REGISTERED_FEATURES,
        process.broker_rack,
        [
            directory.directory_id
            for directory in logs.directories
            if directory.is_online and directory.directory_id is not None
        ],
        -1 if previous_epoch is None else previous_epoch,
    )


class BrokerLifecycleManager:
    """The life of one broker process in the cluster."""

    def __init__(
        self,
        identity: BrokerIdentity,
        *,
        heartbeat_interval_ms: int,
        registration_timeout_ms: int,
        session_timeout_ms: int = 9000,
        is_alone: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_alone`: the controller is in this process and nobody else can be.

        It needs no heartbeats from a broker that is running.
        """
        self._is_alone = is_alone
        self._identity = identity
        self._interval_ms = heartbeat_interval_ms
        self._registration_timeout_ms = registration_timeout_ms
        self._session_timeout_ms = session_timeout_ms
        self._registration_deadline_ms = 0
        self._heard_ms = 0
        self._due_ms: int | None = None
        self._is_in_flight = False
        self._is_ready = False
        self._is_leaving = False
        self._metadata_offset = -1
        self._offline_directories: set[Uuid] = set()
        self._unreported_directories: set[Uuid] = set()
        self._directories_in_flight: set[Uuid] = set()
        self.state = BrokerState.STARTING
        self.broker_epoch = -1
        self.is_fenced = True
        self.leaves_without_consent = False
        """Whether the controller could not write down that this broker leaves."""
        self.failure: ApiError | None = None
        """Why the broker cannot be part of the cluster; None while it can."""
        self.refusal: ApiError | None = None
        """Why the controller refused the last heartbeat for good; None after one it took."""

    # What happens.

    def start(self, now_ms: int) -> None:
        """Register."""
        self._registration_deadline_ms = now_ms + self._registration_timeout_ms
        self._due_ms = now_ms

    def note_metadata_offset(self, offset: int, now_ms: int) -> None:
        """The broker has applied the metadata up to here."""
        was_behind = self._metadata_offset < self.broker_epoch
        self._metadata_offset = offset
        if was_behind and offset >= self.broker_epoch and self.state is BrokerState.RECOVERY:
            self._send_soon(now_ms)

    def become_ready(self, now_ms: int) -> None:
        """The broker can serve clients: ask to be unfenced."""
        self._is_ready = True
        self._send_soon(now_ms)

    def report(self, now_ms: int) -> None:
        """The controller may be another, or think otherwise of this broker: it must hear of it."""
        if self.state is BrokerState.RUNNING:
            self._send_soon(now_ms)

    def directories_failed(self, directories: Iterable[Uuid], now_ms: int) -> None:
        """Tell the controller that replicas in these directories are lost."""
        failed = set(directories)
        self._offline_directories |= failed
        self._unreported_directories |= failed
        self._send_soon(now_ms)

    @property
    def has_unreported_failures(self) -> bool:
        """Whether the controller still takes a failed directory for a good one."""
        return bool(self._unreported_directories)

    def begin_shutdown(self, now_ms: int, *, is_controlled: bool) -> None:
        """Leave; in order, if the controller is to move the leaderships first."""
        is_member = self.state in (BrokerState.RECOVERY, BrokerState.RUNNING)
        if is_controlled and is_member and self.failure is None:
            self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
            self._heard_ms = now_ms
            self._send_soon(now_ms)
        else:
            self._finish()

    def registration_answered(self, response: BrokerRegistrationResponse, now_ms: int) -> None:
        """The controller has answered a registration."""
        self._is_in_flight = False
        if self.state is not BrokerState.STARTING:
            return
        if response.error_code == NO_ERROR:
            self.broker_epoch = response.broker_epoch
            self.state = BrokerState.RECOVERY
            is_behind = self._metadata_offset < self.broker_epoch
            self._due_ms = now_ms + (self._interval_ms if is_behind else 0)
            return
        error = error_for_code(response.error_code)
        # An old process of the same broker counts as alive until its session ends.
        is_worth_waiting = error.retriable or isinstance(error, DuplicateBrokerRegistration)
        if now_ms >= self._registration_deadline_ms or not is_worth_waiting:
            self._fail(error)
        else:
            self._due_ms = now_ms + RETRY_MS

    def heartbeat_answered(self, response: BrokerHeartbeatResponse, now_ms: int) -> None:
        """The controller has answered a heartbeat."""
        self._is_in_flight = False
        if self.state is BrokerState.SHUTTING_DOWN:
            return
        if response.error_code != NO_ERROR:
            self._heartbeat_refused(error_for_code(response.error_code), now_ms)
            return
        self._heard_ms = now_ms
        self._unreported_directories -= self._directories_in_flight
        self.is_fenced = response.is_fenced
        self.refusal = None
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            if response.should_shut_down:
                self._finish()
            else:
                # The first answer took the leaderships away; the next may let the broker go.
                self._wait(now_ms, RETRY_MS if self._is_leaving else 0)
                self._is_leaving = True
            return
        if self.state is BrokerState.RECOVERY and not response.is_fenced:
            self.state = BrokerState.RUNNING
        if self.state is BrokerState.RUNNING and not self.is_fenced and self._is_alone():
            return
        is_hasty = self._is_ready and response.is_fenced
        self._wait(now_ms, min(RETRY_MS, self._interval_ms) if is_hasty else self._interval_ms)

    def _heartbeat_refused(self, error: ApiError, now_ms: int) -> None:
        is_leaving = self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
        if isinstance(error, StaleBrokerEpoch | BrokerIdNotRegistered):
            self._disowned(error, now_ms, is_leaving=is_leaving)
            return
        is_hopeless = isinstance(error, KafkaStorageError) and self._is_alone()
        if is_leaving and (is_hopeless or now_ms >= self._heard_ms + self._session_timeout_ms):
            # The controller stops with this process, and nobody will have room before that; or
            # there has been none for so long that the next one takes this broker for dead anyway.
            self.leaves_without_consent = True
            self._finish()
            return
        self._wait(now_ms, min(RETRY_MS, self._interval_ms))

    def _disowned(self, error: ApiError, now_ms: int, *, is_leaving: bool) -> None:
        """The controller knows a later process of this broker, or none.

        The broker keeps asking, as Apache Kafka's does: ending it is its operator's decision.
        """
        if is_leaving:
            self._finish()
            return
        self.refusal = error
        self._wait(now_ms, self._interval_ms)

    # What to do.

    @property
    def is_silent(self) -> bool:
        """Whether it runs and will send no heartbeat by itself."""
        is_running = self.state is BrokerState.RUNNING
        return is_running and self._due_ms is None and not self._is_in_flight

    @property
    def next_deadline_ms(self) -> int | None:
        """When `take_request` has something; None while an answer is awaited or all is over."""
        return None if self._is_in_flight else self._due_ms

    def take_request(self, now_ms: int) -> Message | None:
        """The request to send now; its answer must be brought. None if there is none."""
        if self._is_in_flight or self._due_ms is None or now_ms < self._due_ms:
            return None
        self._is_in_flight = True
        self._due_ms = None
        if self.state is BrokerState.STARTING:
            return self._registration()
        is_leaving = self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
        self._directories_in_flight = set(self._offline_directories)
        return BrokerHeartbeatRequest(
            broker_id=self._identity.broker_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._metadata_offset,
            want_fence=not self._is_ready,
            want_shut_down=is_leaving,
            offline_log_dirs=sorted(self._offline_directories),
        )

    def _registration(self) -> BrokerRegistrationRequest:
        identity = self._identity
        return BrokerRegistrationRequest(
            broker_id=identity.broker_id,
            cluster_id=identity.cluster_id,
            incarnation_id=identity.incarnation_id,
            listeners=[
                Listener(name=name, host=host, port=port, security_protocol=PROTOCOL_IDS[protocol])
                for name, host, port, protocol in identity.listeners
            ],
            features=[
                Feature(
                    name=name,
                    min_supported_version=supported.lowest,
                    max_supported_version=supported.highest,
                )
                for name, supported in identity.features.items()
            ],
            rack=identity.rack,
            log_dirs=sorted(identity.directories),
            previous_broker_epoch=identity.previous_broker_epoch,
        )

    def _send_soon(self, now_ms: int) -> None:
        """Send the next heartbeat now, or right after the answer that is awaited."""
        if self.broker_epoch >= 0 and self.state is not BrokerState.SHUTTING_DOWN:
            self._due_ms = now_ms

    def _wait(self, now_ms: int, delay_ms: int) -> None:
        """Send the next heartbeat after a while, unless one was sent sooner."""
        if self._due_ms is None:
            self._due_ms = now_ms + delay_ms

    def _fail(self, error: ApiError) -> None:
        self.failure = error
        self._due_ms = None

    def _finish(self) -> None:
        self.state = BrokerState.SHUTTING_DOWN
        self._due_ms = None
