"""Brokers and controllers: registration, heartbeats, fencing, controlled shutdown, farewell.

Rules 10 and 11 of section 6.14 of the facts. Who is alive comes from `BrokerSessions` and the time
that is handed in; everything that lasts becomes records.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from millstream.controller.decision import Decision
from millstream.errors import (
    BrokerIdNotRegistered,
    DuplicateBrokerRegistration,
    InconsistentClusterId,
    InvalidRegistration,
    InvalidRequest,
    UnsupportedVersion,
)
from millstream.metadata.cluster import (
    BrokerRegistration,
    ControllerRegistration,
    Endpoint,
    is_reserved_directory,
)
from millstream.metadata.features import (
    CONTROLLER_REGISTRATION_SINCE,
    CORDONED_DIRECTORIES_SINCE,
    DIRECTORIES_SINCE,
    METADATA_VERSION,
    METADATA_VERSION_MIN,
    UNSERVED_FEATURES,
)
from millstream.protocol.messages.broker_heartbeat import BrokerHeartbeatResponse
from millstream.protocol.messages.broker_records import BrokerRegistrationChangeRecord
from millstream.protocol.messages.broker_registration import BrokerRegistrationResponse
from millstream.protocol.messages.controller_registration import ControllerRegistrationResponse
from millstream.protocol.messages.unregister_broker import UnregisterBrokerResponse
from millstream.protocol.notation import VersionRange

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.controller.decision import RequestContext
    from millstream.controller.replication_control import ControllerState, ReplicationControl
    from millstream.controller.sessions import BrokerSessions
    from millstream.protocol.message import Message
    from millstream.protocol.messages import broker_registration, controller_registration
    from millstream.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
    from millstream.protocol.messages.broker_registration import BrokerRegistrationRequest
    from millstream.protocol.messages.controller_registration import ControllerRegistrationRequest
    from millstream.protocol.messages.unregister_broker import UnregisterBrokerRequest
    from millstream.types import Uuid


class BrokerState(Enum):
    """Where a broker stands between two heartbeats."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"

    @property
    def is_fenced(self) -> bool:
        """Whether it must not serve clients."""
        return self in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW)


def state_of(broker: BrokerRegistration) -> BrokerState:
    """Where a broker stands by the log."""
    if broker.is_fenced:
        return BrokerState.FENCED
    if broker.in_controlled_shutdown:
        return BrokerState.CONTROLLED_SHUTDOWN
    return BrokerState.UNFENCED


class ClusterControl:
    """Decides about nodes."""

    def __init__(
        self,
        state: ControllerState,
        replication: ReplicationControl,
        sessions: BrokerSessions,
        cluster_id: str,
    ) -> None:
        self._state = state
        self._replication = replication
        self._sessions = sessions
        self._cluster_id = cluster_id

    def register_broker(
        self, request: BrokerRegistrationRequest, context: RequestContext, next_offset: int
    ) -> Decision[BrokerRegistrationResponse]:
        """A broker starts. Its epoch is the offset of the record that registers it."""
        if request.cluster_id != self._cluster_id:
            raise InconsistentClusterId(
                f"broker {request.broker_id} belongs to cluster {request.cluster_id!r}, "
                f"this is {self._cluster_id!r}"
            )
        if request.is_migrating_zk_broker:
            raise InvalidRegistration("brokers that migrate from ZooKeeper are not supported")
        existing = self._state.image.cluster.brokers.get(request.broker_id)
        is_same = existing is not None and existing.incarnation_id == request.incarnation_id
        if existing is not None and not is_same:
            self._check_not_alive(existing, context.now_ms)
        registration = self._registration(request, next_offset, existing if is_same else None)
        metadata_version = self._state.image.metadata_version
        records: list[Message] = []
        if existing is not None and not is_same:
            was_clean = context.version < 3 or request.previous_broker_epoch == existing.epoch
            records += self._replication.broker_restarted(existing.id, was_clean=was_clean)
        records.append(registration.to_record(metadata_version))
        return Decision(
            BrokerRegistrationResponse(broker_epoch=registration.epoch), records, is_atomic=False
        )

    def heartbeat(
        self, request: BrokerHeartbeatRequest, context: RequestContext, next_offset: int
    ) -> Decision[BrokerHeartbeatResponse]:
        """A broker is alive; answer where it stands and act on what it wants."""
        broker = self._state.registered_broker(request.broker_id, request.broker_epoch)
        before = state_of(broker)
        after = self._next_state(broker, before, request)
        records: list[Message] = []
        if before is not after:
            records += self._transition(broker, before, after)
        records += self._directory_changes(broker, request, is_staying=not after.is_fenced)
        self._sessions.touch(
            broker.id, broker.epoch, context.now_ms, request.current_metadata_offset
        )
        if after is BrokerState.CONTROLLED_SHUTDOWN and records:
            self._sessions.note_shutdown_offset(broker.id, next_offset + len(records) - 1)
        response = BrokerHeartbeatResponse(
            is_caught_up=self._is_caught_up(broker, request),
            is_fenced=after.is_fenced,
            should_shut_down=after is BrokerState.SHUTDOWN_NOW,
        )
        return Decision(response, records, is_atomic=False)

    def unregister_broker(
        self, request: UnregisterBrokerRequest
    ) -> Decision[UnregisterBrokerResponse]:
        """An operator says that a broker will not come back; one that is alive has not gone."""
        broker = self._state.image.cluster.brokers.get(request.broker_id)
        if broker is None:
            raise BrokerIdNotRegistered(f"broker {request.broker_id} is not registered")
        if not broker.is_fenced:
            raise InvalidRequest(
                f"broker {request.broker_id} is alive: stop it before it is unregistered"
            )
        records = self._replication.broker_unregistered(broker)
        return Decision(UnregisterBrokerResponse(error_message=None), records, is_atomic=False)

    def register_controller(
        self, request: ControllerRegistrationRequest
    ) -> Decision[ControllerRegistrationResponse]:
        """A controller tells where it is and what it supports."""
        if self._state.image.metadata_version < CONTROLLER_REGISTRATION_SINCE:
            raise UnsupportedVersion(
                f"controllers register from {METADATA_VERSION} {CONTROLLER_REGISTRATION_SINCE} on"
            )
        features = _ranges(request.features)
        self._check_features(f"controller {request.controller_id}", features)
        registration = ControllerRegistration(
            request.controller_id,
            request.incarnation_id,
            _endpoints(request.listeners),
            features,
            request.zk_migration_ready,
        )
        return Decision(
            ControllerRegistrationResponse(error_message=None), [registration.to_record()]
        )

    def fence_expired(self, broker_id: int) -> Decision[None]:
        """A broker was silent for longer than its session."""
        broker = self._state.image.cluster.brokers[broker_id]
        return Decision(None, self._replication.broker_fenced(broker), is_atomic=False)

    def _check_not_alive(self, existing: BrokerRegistration, now_ms: int) -> None:
        if existing.in_controlled_shutdown:
            return
        if self._sessions.is_valid(existing.id, existing.epoch, now_ms):
            raise DuplicateBrokerRegistration(
                f"another process is registered as broker {existing.id} and alive; if it was "
                "just restarted this ends when the session of the old one does"
            )

    def _registration(
        self,
        request: BrokerRegistrationRequest,
        next_offset: int,
        same: BrokerRegistration | None,
    ) -> BrokerRegistration:
        """The registration; the same process that asks again keeps its epoch and state."""
        features = _ranges(request.features)
        self._check_features(f"broker {request.broker_id}", features)
        directories = self._checked_directories(request)
        return BrokerRegistration(
            request.broker_id,
            next_offset if same is None else same.epoch,
            request.incarnation_id,
            _endpoints(request.listeners),
            features,
            request.rack,
            is_fenced=True if same is None else same.is_fenced,
            in_controlled_shutdown=False if same is None else same.in_controlled_shutdown,
            directories=directories,
        )

    def _checked_directories(self, request: BrokerRegistrationRequest) -> tuple[Uuid, ...]:
        if self._state.image.metadata_version < DIRECTORIES_SINCE:
            return ()
        directories = tuple(sorted(request.log_dirs))
        if not directories:
            raise InvalidRegistration(f"broker {request.broker_id} names no log directory")
        if len(set(directories)) < len(directories):
            raise InvalidRegistration(f"broker {request.broker_id} names a log directory twice")
        for directory in directories:
            if is_reserved_directory(directory):
                raise InvalidRegistration(f"{directory} is not the id of a directory")
        for other in self._state.image.cluster.brokers.values():
            if other.id != request.broker_id and set(directories) & set(other.directories):
                raise InvalidRegistration(
                    f"broker {request.broker_id} names a log directory of broker {other.id}"
                )
        return directories

    def _check_features(self, who: str, features: Mapping[str, VersionRange]) -> None:
        """A node must support every level that the cluster is at, of what is served here."""
        for name, level in self._state.image.features.levels.items():
            if name in UNSERVED_FEATURES:
                continue
            default = VersionRange(0, 0)
            if name == METADATA_VERSION:
                default = VersionRange(METADATA_VERSION_MIN, METADATA_VERSION_MIN)
            supported = features.get(name, default)
            if not supported.covers(level):
                raise UnsupportedVersion(
                    f"the cluster has {name} at level {level}, {who} supports {supported}"
                )

    def _next_state(
        self, broker: BrokerRegistration, current: BrokerState, request: BrokerHeartbeatRequest
    ) -> BrokerState:
        if current is BrokerState.FENCED:
            if request.want_shut_down:
                return BrokerState.SHUTDOWN_NOW
            is_caught_up = self._is_caught_up(broker, request)
            # A broker that began to shut down comes back by registering anew, not by changing its
            # mind.
            can_join = is_caught_up and not request.want_fence and not broker.in_controlled_shutdown
            return BrokerState.UNFENCED if can_join else BrokerState.FENCED
        if request.want_fence:
            return BrokerState.SHUTDOWN_NOW if request.want_shut_down else BrokerState.FENCED
        if current is BrokerState.UNFENCED:
            if not request.want_shut_down:
                return BrokerState.UNFENCED
            if self._state.index.has_leaderships(broker.id):
                return BrokerState.CONTROLLED_SHUTDOWN
            return BrokerState.SHUTDOWN_NOW
        return self._next_while_shutting_down(broker)

    def _is_caught_up(self, broker: BrokerRegistration, request: BrokerHeartbeatRequest) -> bool:
        """Whether the broker has applied the record that registered it.

        Its epoch is the offset of the first record of that decision; where the record itself is
        not known, because it came with a snapshot, that must do.
        """
        epoch, offset = self._state.registered_at.get(broker.id, (-1, -1))
        registered_at = offset if epoch == broker.epoch else broker.epoch
        return request.current_metadata_offset >= registered_at

    def _next_while_shutting_down(self, broker: BrokerRegistration) -> BrokerState:
        # It was taken out of every ISR when it asked to go, so it leads nothing any more.
        brokers = self._state.image.cluster.brokers
        active = [broker_id for broker_id, each in brokers.items() if each.is_active]
        if self._sessions.all_have_seen_shutdown_of(broker.id, active):
            return BrokerState.SHUTDOWN_NOW
        return BrokerState.CONTROLLED_SHUTDOWN

    def _transition(
        self, broker: BrokerRegistration, before: BrokerState, after: BrokerState
    ) -> list[Message]:
        if after is BrokerState.UNFENCED:
            return self._replication.broker_unfenced(broker)
        if after is BrokerState.CONTROLLED_SHUTDOWN:
            return self._replication.broker_shutting_down(broker)
        if before is BrokerState.FENCED:
            return []
        return self._replication.broker_fenced(broker)

    def _directory_changes(
        self, broker: BrokerRegistration, request: BrokerHeartbeatRequest, *, is_staying: bool
    ) -> list[Message]:
        """Directories that failed, or that are cordoned off or no longer are."""
        metadata_version = self._state.image.metadata_version
        lost = set(request.offline_log_dirs) & set(broker.directories)
        cordoned = request.cordoned_log_dirs
        has_cordon = metadata_version >= CORDONED_DIRECTORIES_SINCE and cordoned is not None
        new_cordon = tuple(sorted(cordoned)) if has_cordon and cordoned is not None else None
        if new_cordon == (broker.cordoned_directories or ()):
            new_cordon = None
        if not lost and new_cordon is None:
            return []
        change = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch)
        if lost:
            change.log_dirs = [each for each in broker.directories if each not in lost]
        if new_cordon is not None:
            change.cordoned_log_dirs = list(new_cordon)
        records: list[Message] = [change]
        if lost and is_staying:
            records += self._replication.directories_lost(broker, self._partitions_in(broker, lost))
        return records

    def _partitions_in(
        self, broker: BrokerRegistration, directories: set[Uuid]
    ) -> list[tuple[Uuid, int]]:
        topics = self._state.image.topics
        return [
            (topic_id, partition_id)
            for topic_id, partition_id in self._state.index.in_isr(broker.id)
            if topics.by_id[topic_id].partitions[partition_id].directory_of(broker.id)
            in directories
        ]


def _endpoints(
    listeners: Sequence[broker_registration.Listener] | Sequence[controller_registration.Listener],
) -> dict[str, Endpoint]:
    endpoints: dict[str, Endpoint] = {}
    for each in listeners:
        if each.name in endpoints:
            raise InvalidRequest(f"listener {each.name} occurs twice in the registration")
        endpoints[each.name] = Endpoint(each.name, each.host, each.port, each.security_protocol)
    return endpoints


def _ranges(
    features: Sequence[broker_registration.Feature] | Sequence[controller_registration.Feature],
) -> dict[str, VersionRange]:
    return {
        each.name: VersionRange(each.min_supported_version, each.max_supported_version)
        for each in features
    }
