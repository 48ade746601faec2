"""Moves of partitions from one log directory of this broker to another, a piece at a time.

The AlterReplicaLogDirs handler begins a move; a broker that starts goes on with those that the last
process left. A future log is filled beside the one in use, in pieces between which other requests
are answered; when it has everything it takes its place, and the controller is told where the
replica is now.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from millstream.controller.decision import RequestContext
from millstream.errors import ApiError, NotLeaderOrFollower, ReplicaNotAvailable, error_for_code
from millstream.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
    AssignReplicasToDirsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.clock import Clock
    from millstream.protocol.message import Message
    from millstream.replica.partition import Partition
    from millstream.replica.replica_manager import ReplicaManager
    from millstream.server.ports import ControllerChannel
    from millstream.storage.manager.log_manager import LogManager
    from millstream.types import TopicPartition

_logger = logging.getLogger(__name__)

PIECE_BYTES: Final = 1 << 20
"""How much is copied before others get their turn."""


class ReplicaMoves:
    """The moves that are under way."""

    def __init__(
        self,
        node_id: int,
        replicas: ReplicaManager,
        logs: LogManager,
        controller: ControllerChannel,
        broker_epoch: Callable[[], int],
        clock: Clock,
        defer: Callable[[Callable[[], None]], object],
    ) -> None:
        """`defer` calls something soon, after what is going on now."""
        self._node_id = node_id
        self._replicas = replicas
        self._logs = logs
        self._controller = controller
        self._broker_epoch = broker_epoch
        self._clock = clock
        self._defer = defer
        # In turn: who got a piece goes to the end.
        self._moving: dict[TopicPartition, None] = {}

    def begin(self, topic: str, index: int, path: str) -> None:
        """Move a partition to the directory `path`; nothing happens if it is there already."""
        try:
            partition = self._replicas.partition(topic, index)
        except NotLeaderOrFollower as error:
            raise ReplicaNotAvailable(str(error)) from error
        if self._logs.moves.begin(partition.name, path) is None:
            self._moving.pop(partition.name, None)
            return
        if not self._moving:
            self._defer(self._advance)
        self._moving[partition.name] = None

    def resume(self) -> None:
        """Go on with the moves that the last process did not finish."""
        for name in self._logs.moves.partitions:
            try:
                self._replicas.partition(name.topic, name.partition)
                if not self._logs.moves.resume(name):
                    continue
            except ApiError as error:
                _logger.warning("a move of %s is given up: %s", name, error)
                self._logs.moves.cancel(name)
                continue
            _logger.info("going on with the move of %s to another directory", name)
            self._moving[name] = None
        if self._moving:
            self._defer(self._advance)

    def _advance(self) -> None:
        if not self._moving:
            return
        name = next(iter(self._moving))
        del self._moving[name]
        try:
            partition = self._replicas.partition(name.topic, name.partition)
            if self._logs.moves.advance(name, PIECE_BYTES) == 0:
                partition.use_log(self._logs.moves.finish(name))
                self._report(partition)
            else:
                self._moving[name] = None
        except ApiError as error:
            _logger.warning("%s could not be moved to another directory: %s", name, error)
            self._logs.moves.cancel(name)
        if self._moving:
            self._defer(self._advance)

    def _report(self, partition: Partition) -> None:
        """Tell the controller, so that it knows which replicas are lost if the disk fails."""
        directory_id = self._logs.directory_of(partition.name).directory_id
        assert directory_id is not None
        request = AssignReplicasToDirsRequest(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            directories=[
                AssignReplicasToDirsRequestDirectoryData(
                    id=directory_id,
                    topics=[
                        AssignReplicasToDirsRequestTopicData(
                            topic_id=partition.topic_id,
                            partitions=[
                                AssignReplicasToDirsRequestPartitionData(
                                    partition_index=partition.name.partition
                                )
                            ],
                        )
                    ],
                )
            ],
        )
        context = RequestContext(
            now_ms=self._clock.monotonic_ms(), wall_ms=self._clock.wall_ms(), version=0
        )

        def answered(response: Message) -> None:
            assert isinstance(response, AssignReplicasToDirsResponse)
            if response.error_code:
                reason = error_for_code(response.error_code)
                _logger.warning("the controller was not told of a move: %s", reason)

        self._controller.submit(request, context, answered)
