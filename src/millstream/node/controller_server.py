"""The controller of a node: `QuorumController` with raft beneath it and the time brought to it.

`Node` makes one on a node with the role. It registers itself with the active controller, so that
the cluster knows where its controllers are and what they support.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from millstream.controller.controls import ControllerSeams
from millstream.controller.decision import RequestContext
from millstream.controller.quorum_controller import QuorumController
from millstream.errors import NO_ERROR, error_for_code
from millstream.metadata.features import CONTROLLER_REGISTRATION_SINCE, REGISTERED_FEATURES
from millstream.metadata.records import encode_record
from millstream.network.server.listener_limits import limit_key
from millstream.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    Feature,
    Listener,
)
from millstream.server.forwarding import RAFT_REQUESTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from random import Random

    from millstream.clock import Clock
    from millstream.metadata.bootstrap import BootstrapMetadata
    from millstream.metadata.delta import MetadataDelta
    from millstream.metadata.image import MetadataImage, MetadataProvenance
    from millstream.metadata.publisher import LeaderAndEpoch, LoaderManifest
    from millstream.metadata.records import MetadataBatch, VersionedRecord
    from millstream.node.config import NodeConfig
    from millstream.node.timers import Timers
    from millstream.protocol.message import Message
    from millstream.raft.driver import RaftDriver
    from millstream.raft.voters import Endpoint
    from millstream.server.ports import ControllerChannel
    from millstream.types import Uuid

_logger = logging.getLogger(__name__)


class ActiveLog:
    """The controller's end of the metadata log: a `MetadataLog` of `controller.ports`."""

    def __init__(self, driver: RaftDriver) -> None:
        self._driver = driver

    def next_offset(self) -> int:
        """Where the next append will begin."""
        return self._driver.next_offset

    def append(self, epoch: int, records: Sequence[VersionedRecord]) -> int:
        """Append one batch; the offset of its last record."""
        _, end_offset = self._driver.submit(epoch, [encode_record(each) for each in records])
        return end_offset - 1

    @property
    def obstacle(self) -> Exception | None:
        """Why nothing can be written at the moment; None while all is well."""
        return self._driver.obstacle

    def resign(self, epoch: int) -> None:
        """Give up the leadership of that epoch."""
        self._driver.resign(epoch)

    @property
    def kraft_version(self) -> int:
        """The level of kraft.version."""
        return self._driver.core.kraft_version

    def upgrade_kraft_version(self, epoch: int, level: int, *, validate_only: bool) -> None:
        """Raise kraft.version."""
        self._driver.upgrade_kraft_version(epoch, level, validates_only=validate_only)


class ControllerServer:
    """The controller with its surroundings; raft's news come through `SharedServer`."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        cluster_id: str,
        driver: RaftDriver,
        bootstrap: BootstrapMetadata,
        clock: Clock,
        random: Random,
        timers: Timers,
    ) -> None:
        self._clock = clock
        self._driver = driver
        self._listener = config.network.controller_listener_names[0].upper()
        self._alarm = timers.alarm(self._tick)
        self._controller = QuorumController(
            node_id=config.process.node_id,
            cluster_id=cluster_id,
            config=config.controller,
            log=ActiveLog(driver),
            bootstrap=bootstrap,
            random=random,
            topic_defaults=config.topics,
            seams=ControllerSeams(
                broker_settings=config.classes,
                listener_key=limit_key,
                quorum_ids=lambda: frozenset(driver.core.voters.ids),
            ),
            on_fault=_report_fault,
        )

    @property
    def is_active(self) -> bool:
        """Whether this controller decides."""
        return self._controller.is_active

    @property
    def epoch(self) -> int:
        """The epoch it is active in; -1 when it is not."""
        return self._controller.epoch

    def submit(
        self, request: Message, context: RequestContext, callback: Callable[[Message], None]
    ) -> None:
        """Decide about a request, or refuse it if this controller is not the active one."""
        if type(request) in RAFT_REQUESTS:
            self._driver.handle(request, context.version, self._listener, callback)
            return
        self._controller.handle(request, context, callback)
        self._arm()

    def on_leader(self, epoch: int) -> None:
        """This node leads the quorum."""
        self._controller.on_leader(epoch, self._clock.monotonic_ms(), self._clock.wall_ms())
        _logger.info("this node is the active controller, epoch %d", epoch)
        self._arm()

    def on_not_leader(self) -> None:
        """It does not."""
        if self._controller.is_active:
            _logger.info("this node is no longer the active controller")
        self._controller.on_not_leader()
        self._arm()

    def on_stalled(self) -> None:
        """Nothing can be committed for now."""
        self._controller.on_stalled()

    def on_batch(self, batch: MetadataBatch) -> None:
        """Committed records."""
        self._controller.on_batch(batch)

    def on_snapshot(self, batches: Iterable[MetadataBatch], provenance: MetadataProvenance) -> None:
        """The log begins with a snapshot."""
        self._controller.on_snapshot(batches, provenance)

    def _tick(self) -> None:
        self._controller.tick(self._clock.monotonic_ms(), self._clock.wall_ms())
        self._arm()

    def _arm(self) -> None:
        self._alarm.set(self._controller.next_deadline_ms)


class ControllerRegistrar:
    """A publisher that registers this controller once the cluster can take it."""

    name = "controller registration"

    def __init__(
        self,
        node_id: int,
        incarnation_id: Uuid,
        endpoints: Mapping[str, tuple[Endpoint, int]],
        channel: ControllerChannel,
        clock: Clock,
    ) -> None:
        """`endpoints`: by listener, where it is and the number of its protocol."""
        self._node_id = node_id
        self._incarnation_id = incarnation_id
        self._endpoints = endpoints
        self._channel = channel
        self._clock = clock
        self._is_sent = False

    def publish(self, delta: MetadataDelta, image: MetadataImage, manifest: LoaderManifest) -> None:
        """Register when the image does not have this process yet."""
        registered = image.cluster.controllers.get(self._node_id)
        is_current = registered is not None and registered.incarnation_id == self._incarnation_id
        can_register = image.metadata_version >= CONTROLLER_REGISTRATION_SINCE
        if self._is_sent or is_current or not can_register:
            return
        self._is_sent = True
        now_ms, wall_ms = self._clock.monotonic_ms(), self._clock.wall_ms()
        context = RequestContext("User:ANONYMOUS", now_ms, wall_ms, 0)
        self._channel.submit(self._request(), context, self._answered)

    def leader_changed(self, leader: LeaderAndEpoch) -> None:
        """The channel finds the leader."""

    def close(self) -> None:
        """Nothing to release."""

    def _request(self) -> ControllerRegistrationRequest:
        return ControllerRegistrationRequest(
            controller_id=self._node_id,
            incarnation_id=self._incarnation_id,
            zk_migration_ready=False,
            listeners=[
                Listener(name=name, host=where.host, port=where.port, security_protocol=protocol)
                for name, (where, protocol) in self._endpoints.items()
            ],
            features=[
                Feature(
                    name=name,
                    min_supported_version=supported.lowest,
                    max_supported_version=supported.highest,
                )
                for name, supported in REGISTERED_FEATURES.items()
            ],
        )

    def _answered(self, response: Message) -> None:
        assert isinstance(response, ControllerRegistrationResponse)
        if response.error_code != NO_ERROR:
            # The next publication tries again.
            self._is_sent = False
            error = error_for_code(response.error_code, response.error_message)
            _logger.warning("this controller could not register: %s", error)


def _report_fault(problem: str, error: Exception) -> None:
    _logger.error("%s: %s", problem, error, exc_info=error)
