"""The broker of a node: logs, replicas, request handlers and its membership in the cluster.

`Node` starts and stops it. Everything here runs on the event loop's thread; what waits, waits for
an event and never for a moment that somebody guessed.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from millstream.controller.decision import RequestContext
from millstream.errors import KafkaStorageError, MillstreamError
from millstream.metadata.features import SUPPORTED_FEATURES
from millstream.network.log_limiter import LogLimiter
from millstream.node.assignments import AssignmentsManager
from millstream.node.broker_lifecycle import (
    BrokerLifecycleManager,
    BrokerState,
    broker_identity,
)
from millstream.node.client_telemetry import telemetry_receiver
from millstream.node.coordinators import BrokerCoordinators, coordinator_configs
from millstream.node.dynamic_config import DynamicConfig
from millstream.node.isr_alterer import ControllerIsrAlterer
from millstream.node.log_keeper import LogKeeper
from millstream.node.log_reopener import LogReopener
from millstream.node.peer_calls import BrokerPeers
from millstream.node.publishers import (
    ConfigPublisher,
    ProgressPublisher,
    ReplicaPublisher,
)
from millstream.node.replica_fetchers import FetcherDriver
from millstream.protocol.api import ApiKey
from millstream.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsResponse
from millstream.protocol.messages.broker_heartbeat import BrokerHeartbeatResponse
from millstream.protocol.messages.broker_registration import BrokerRegistrationResponse
from millstream.replica.replica_manager import ReplicaManager
from millstream.replica.replica_selector import make_selector
from millstream.server.kafka_apis import KafkaApis
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from millstream.clock import Clock
    from millstream.network.endpoint import Endpoint
    from millstream.network.server.socket_server import SocketServer
    from millstream.node.config import NodeConfig
    from millstream.node.controller_channel import NodeToControllerChannel
    from millstream.node.environment import Environment
    from millstream.node.shared_server import SharedServer
    from millstream.node.timers import Timers
    from millstream.node.workers import Workers
    from millstream.protocol.message import Message
    from millstream.storage.filesystem import FileSystem
    from millstream.storage.log.config import LogConfig
    from millstream.storage.manager.log_registry import DirectoryFailure

_logger = logging.getLogger(__name__)

FORWARDING_TIMEOUT_MS: Final = 60_000
"""How long a request to the controller may look for one."""
CONTROLLED_SHUTDOWN_MAX_MS: Final = 300_000
"""How long a stop waits for the controller to move the leaderships."""


class BrokerServer:
    """A broker, from its logs to its membership."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        cluster_id: str,
        shared: SharedServer,
        make_channel: Callable[[int | None], NodeToControllerChannel],
        sockets: SocketServer,
        filesystem: FileSystem,
        clock: Clock,
        random: Random,
        timers: Timers,
        workers: Workers,
        environment: Environment,
        on_fatal: Callable[[str, Exception], None],
        is_alone: Callable[[], bool],
    ) -> None:
        """Touches nothing.

        `make_channel` gives a way to the controller by how long a request may take. `is_alone`: no
        other node can be the active controller.
        """
        self._is_alone = is_alone
        self._config = config
        self._cluster_id = cluster_id
        self._shared = shared
        self._make_channel = make_channel
        # One purpose, one channel: what waits for its answer must not hold the heartbeats back.
        self._channel = make_channel(FORWARDING_TIMEOUT_MS)
        self._heartbeats = make_channel(config.controller.broker_session_timeout_ms // 2)
        self._directory_channel = make_channel(FORWARDING_TIMEOUT_MS)
        self._sockets = sockets
        self._clock = clock
        self._random = random
        self._timers = timers
        self._workers = workers
        self._environment = environment
        self._on_fatal = on_fatal
        self._log = LogLimiter(clock, _logger)
        self._loop = asyncio.get_running_loop()
        self._lifecycle: BrokerLifecycleManager | None = None
        self._lifecycle_changed: asyncio.Future[None] | None = None
        self._lifecycle_alarm = timers.alarm(self._pump)
        self._assignments = AssignmentsManager(config.process.node_id, shared.metadata.topic_name)
        self._assignments_alarm = timers.alarm(self._send_assignments)
        self._failure_alarm = timers.alarm(self._check_failures_reported)
        self._replicas_alarm = timers.alarm(self._tick_replicas)
        self._coordinators_alarm = timers.alarm(self._tick_coordinators)
        self.dynamic = DynamicConfig(config)
        self.metadata = shared.metadata
        self._keeper = LogKeeper(
            config,
            self.dynamic,
            cluster_id=cluster_id,
            filesystem=filesystem,
            clock=clock,
            random=random,
            timers=timers,
            workers=workers,
            on_directory_failure=self._directory_failed,
        )
        self.logs = self._keeper.logs
        self.replicas = self._make_replicas()
        self._fetching = self._make_fetching(environment)
        self.coordinators = self._make_coordinators()
        self.apis = self._make_apis()

    @property
    def broker_epoch(self) -> int:
        """The epoch of this process in the cluster; -1 before it is registered."""
        return -1 if self._lifecycle is None else self._lifecycle.broker_epoch

    @property
    def state(self) -> BrokerState:
        """Where the broker stands."""
        return BrokerState.STARTING if self._lifecycle is None else self._lifecycle.state

    # The parts.

    def _make_replicas(self) -> ReplicaManager:
        return ReplicaManager(
            self._config.replicas,
            broker_id=self._config.process.node_id,
            store=self.logs,
            cache=self.metadata,
            clock=self._clock,
            random=self._random,
            defer=self._sockets.processor.defer,
            arm=self._replicas_alarm.advance,
            broker_epoch=lambda: self.broker_epoch,
            run_on_worker=partial(self._workers.run, "records"),
            selector=make_selector(self._config.replicas.replica_selector_class),
            alterer=ControllerIsrAlterer(
                self._config.process.node_id,
                self._make_channel(None),
                broker_epoch=lambda: self.broker_epoch,
                clock=self._clock,
                timers=self._timers,
            ),
        )

    def _make_fetching(self, environment: Environment) -> FetcherDriver:
        return FetcherDriver(
            self._config.replicas,
            self.replicas.fetchers,
            self.metadata,
            environment,
            self._timers,
            broker_id=self._config.process.node_id,
            listener=self._config.network.inter_broker_name or "",
        )

    def _make_coordinators(self) -> BrokerCoordinators:
        return BrokerCoordinators(
            self._config.process.node_id,
            coordinator_configs(self._config),
            given=self._config.given,
            replicas=self.replicas,
            metadata=self.metadata,
            controller=self._channel,
            make_peers=self._make_peers,
            broker_epoch=lambda: self.broker_epoch,
            clock=self._clock,
            random=self._random,
            defer=self._sockets.processor.defer,
            call_later=lambda delay_ms, call: self._loop.call_later(delay_ms / 1000, call),
            arm=self._coordinators_alarm.advance,
        )

    def _make_peers(self) -> BrokerPeers:
        return BrokerPeers(
            self._config.process.node_id,
            self._environment,
            self._timers,
            self.metadata,
            self._config.network.inter_broker_name or "",
        )

    def _make_apis(self) -> KafkaApis:
        return KafkaApis(
            node_id=self._config.process.node_id,
            cluster_id=self._cluster_id,
            config=self._config.server,
            settings=self._config,
            topic_defaults=lambda: self.dynamic.topics,
            metadata=self.metadata,
            replicas=self.replicas,
            logs=self.logs,
            controller=self._channel,
            controller_versions=self._channel.controller_versions,
            broker_epoch=lambda: self.broker_epoch,
            features=SUPPORTED_FEATURES,
            clock=self._clock,
            random=self._random,
            defer=self._loop.call_soon,
            coordinators=self.coordinators.facades,
            telemetry=telemetry_receiver(self._config.process.client_telemetry, self._clock),
        )

    # Start.

    async def start(self, advertised: tuple[Endpoint, ...]) -> None:
        """Register, open the logs, apply the metadata, be unfenced. Requests are not served yet.

        The controller hears of this broker while its logs are recovered, however long that takes.
        """
        self.dynamic.load(self._shared.loader.image.configs)
        self._keeper.take_directories()
        self._lifecycle = self._make_lifecycle(advertised)
        self._lifecycle.start(self._clock.monotonic_ms())
        self._pump()
        await self._keeper.recover()
        self._install_publishers()
        self._lifecycle.become_ready(self._clock.monotonic_ms())
        self._pump()
        await self._until(lambda life: life.state is BrokerState.RUNNING)
        self.apis.moves.resume()

    def _install_publishers(self) -> None:
        node_id = self._config.process.node_id
        replicas = ReplicaPublisher(node_id, self.replicas, self.logs, self._replica_placed)
        coordinators = self.coordinators.publisher
        self._shared.loader.install(
            [
                ConfigPublisher(
                    node_id,
                    self.dynamic,
                    on_topic=self._topic_config_changed,
                    on_broker=self._broker_config_changed,
                ),
                replicas,
                coordinators,
                LogReopener(
                    self.replicas.changes, replicas, coordinators, self._clock, self._timers
                ),
                ProgressPublisher(self._metadata_applied, self._controller_changed),
            ]
        )

    def _make_lifecycle(self, advertised: tuple[Endpoint, ...]) -> BrokerLifecycleManager:
        process = self._config.process
        return BrokerLifecycleManager(
            broker_identity(
                process, self._cluster_id, Uuid.random(self._random), advertised, self.logs
            ),
            heartbeat_interval_ms=process.heartbeat_interval_ms,
            registration_timeout_ms=process.registration_timeout_ms,
            session_timeout_ms=self._config.controller.broker_session_timeout_ms,
            is_alone=self._is_alone,
        )

    # Stop.

    async def leave(self, *, is_controlled: bool) -> None:
        """Hand the leaderships over and take leave of the cluster, if that can be."""
        lifecycle = self._lifecycle
        if lifecycle is None or lifecycle.failure is not None:
            return
        is_controlled = is_controlled and self._config.process.controlled_shutdown_enable
        lifecycle.begin_shutdown(self._clock.monotonic_ms(), is_controlled=is_controlled)
        self.replicas.fetchers.leave()
        self._pump()
        try:
            async with asyncio.timeout(CONTROLLED_SHUTDOWN_MAX_MS / 1000):
                await self._until(lambda life: life.state is BrokerState.SHUTTING_DOWN)
        except TimeoutError:
            _logger.warning("the controller did not let this broker go in time; stopping anyway")
        except MillstreamError as error:
            _logger.warning("this broker leaves without the controller's consent: %s", error)
        if lifecycle.leaves_without_consent:
            _logger.warning("this broker leaves unrecorded: no controller can write it down")
        await self._until_commits_settled()

    async def _until_commits_settled(self) -> None:
        """What was appended gets its acknowledgement: a client need not write it twice."""
        settled: asyncio.Future[None] = self._loop.create_future()
        self.logs.when_commits_settled(lambda: None if settled.done() else settled.set_result(None))
        await asyncio.wait([settled], timeout=self._config.process.drain_timeout_ms / 1000)

    def stop(self) -> None:
        """Answer everybody who waits and close the logs, so that the next start is quick."""
        self.coordinators.close()
        self._fetching.close()
        self.replicas.stop()
        self._keeper.stop(self.broker_epoch)

    def abandon(self) -> None:
        """Let go of the logs as they are."""
        self._fetching.close()
        self.coordinators.hang_up()
        self._keeper.abandon()

    # Membership.

    def _pump(self) -> None:
        """Send what the lifecycle wants to send, and wake up when it wants to again."""
        lifecycle = self._lifecycle
        if lifecycle is None:
            return
        request = lifecycle.take_request(self._clock.monotonic_ms())
        if request is not None:
            is_heartbeat = lifecycle.state is not BrokerState.STARTING
            api = ApiKey.BROKER_HEARTBEAT if is_heartbeat else ApiKey.BROKER_REGISTRATION
            self._heartbeats.submit(request, self._context(api), self._answered)
        self._lifecycle_alarm.set(lifecycle.next_deadline_ms)

    def _answered(self, response: Message) -> None:
        lifecycle = self._lifecycle
        assert lifecycle is not None
        before = lifecycle.state, lifecycle.is_fenced
        now_ms = self._clock.monotonic_ms()
        if isinstance(response, BrokerRegistrationResponse):
            lifecycle.registration_answered(response, now_ms)
        else:
            assert isinstance(response, BrokerHeartbeatResponse)
            lifecycle.heartbeat_answered(response, now_ms)
            if lifecycle.refusal is not None:
                message = "the controller refuses this broker's heartbeats: %s; it asks again"
                self._log.warning("heartbeat refused", message, lifecycle.refusal)
        if lifecycle.failure is not None or before != (lifecycle.state, lifecycle.is_fenced):
            self._note_membership(lifecycle)
        self._pump()

    def _note_membership(self, lifecycle: BrokerLifecycleManager) -> None:
        if lifecycle.failure is not None:
            self._on_fatal("this broker cannot be part of the cluster", lifecycle.failure)
        elif lifecycle.state is BrokerState.RUNNING and lifecycle.is_fenced:
            _logger.warning("this broker is fenced: the controller had not heard of it in time")
        if self._lifecycle_changed is not None and not self._lifecycle_changed.done():
            self._lifecycle_changed.set_result(None)

    async def _until(self, holds: Callable[[BrokerLifecycleManager], bool]) -> None:
        """Wait for the lifecycle; raises why it failed."""
        assert self._lifecycle is not None
        while not holds(self._lifecycle):
            if self._lifecycle.failure is not None:
                raise self._lifecycle.failure
            self._lifecycle_changed = self._loop.create_future()
            await self._lifecycle_changed

    def _metadata_applied(self, last_offset: int) -> None:
        if self._lifecycle is not None:
            now_ms = self._clock.monotonic_ms()
            self._lifecycle.note_metadata_offset(last_offset, now_ms)
            known = self.metadata.broker(self._config.process.node_id)
            is_unknown = known is None or known.is_fenced or known.epoch != self.broker_epoch
            if is_unknown or (self._lifecycle.is_silent and not self._is_alone()):
                self._lifecycle.report(now_ms)
            # After the publication: an answer of the controller must not come in between.
            self._lifecycle_alarm.set(self._lifecycle.next_deadline_ms)
        self._keeper.arm()

    def _controller_changed(self) -> None:
        if self._lifecycle is not None:
            self._lifecycle.report(self._clock.monotonic_ms())
            self._lifecycle_alarm.set(self._lifecycle.next_deadline_ms)

    def _context(self, api: ApiKey) -> RequestContext:
        now_ms, wall_ms = self._clock.monotonic_ms(), self._clock.wall_ms()
        return RequestContext("User:ANONYMOUS", now_ms, wall_ms, api.released.highest)

    # Directories.

    def _replica_placed(self, topic_id: Uuid, partition: int, directory_id: Uuid) -> None:
        self._assignments.assign(topic_id, partition, directory_id, self._clock.monotonic_ms())
        self._assignments_alarm.set(self._assignments.next_deadline_ms)

    def _send_assignments(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if self.broker_epoch < 0:
            # Registered soon; nobody can be told before.
            self._assignments_alarm.set(now_ms + 10)
            return
        request = self._assignments.take_request(self.broker_epoch, now_ms)
        if request is not None:
            context = self._context(ApiKey.ASSIGN_REPLICAS_TO_DIRS)
            self._directory_channel.submit(request, context, self._assigned)

    def _assigned(self, response: Message) -> None:
        assert isinstance(response, AssignReplicasToDirsResponse)
        self._assignments.answered(response, self._clock.monotonic_ms())
        self._assignments_alarm.set(self._assignments.next_deadline_ms)

    def _directory_failed(self, failure: DirectoryFailure) -> None:
        _logger.error("%s is out of service: %s", failure.path, failure.error)
        self.replicas.fail_directory(failure)
        if failure.is_last:
            problem = KafkaStorageError("no log directory is left in service")
            self._on_fatal("the broker cannot go on", problem)
        elif self._lifecycle is not None and failure.directory_id is not None:
            now_ms = self._clock.monotonic_ms()
            self._lifecycle.directories_failed([failure.directory_id], now_ms)
            self._lifecycle_alarm.set(self._lifecycle.next_deadline_ms)
            self._failure_alarm.advance(now_ms + self._config.logs.dir_failure_timeout_ms)

    def _check_failures_reported(self) -> None:
        """A broker whose lost replicas the controller counts on must not stay in the cluster."""
        if self._lifecycle is not None and self._lifecycle.has_unreported_failures:
            problem = KafkaStorageError("the controller could not be told in time")
            self._on_fatal("a log directory has failed", problem)

    # Settings.

    def _topic_config_changed(self, topic: str, config: LogConfig) -> None:
        self._keeper.update_topic(topic, config)
        self.replicas.note_topic_config(topic)

    def _broker_config_changed(self) -> None:
        self._keeper.update_broker()
        self._sockets.update_limits(self.dynamic.network)

    # Time.

    def _tick_replicas(self) -> None:
        self.replicas.tick()
        self._replicas_alarm.set(self.replicas.next_deadline_ms())

    def _tick_coordinators(self) -> None:
        self.coordinators.tick()
        self._coordinators_alarm.set(self.coordinators.next_deadline_ms())
