"""`AssignmentsManager`: tells the controller in which directory each replica is.

A broker with several log directories chooses one for a new replica by itself; the cluster must know
which, to be able to tell what is lost when a disk fails. Assignments that come while a request
is under way go together in the next. `BrokerServer` tells it the time.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from millstream.errors import NO_ERROR, error_for_code
from millstream.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
    AssignReplicasToDirsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.types import Uuid

PARTITIONS_PER_REQUEST_MAX: Final = 2250
"""As many as Apache Kafka sends at once."""
RETRY_MS: Final = 500

_logger = logging.getLogger(__name__)


class AssignmentsManager:
    """Which replicas the controller has not been told about yet."""

    def __init__(self, broker_id: int, topic_name: Callable[[Uuid], str | None]) -> None:
        """`topic_name` gives None for a topic that was deleted."""
        self._broker_id = broker_id
        self._topic_name = topic_name
        self._waiting: dict[tuple[Uuid, int], Uuid] = {}
        self._sent: dict[tuple[Uuid, int], Uuid] = {}
        self._due_ms: int | None = None

    def assign(self, topic_id: Uuid, partition: int, directory_id: Uuid, now_ms: int) -> None:
        """A replica is in a directory. What was said of it before no longer holds."""
        self._waiting[topic_id, partition] = directory_id
        if self._due_ms is None:
            self._due_ms = now_ms

    def forget(self, topic_id: Uuid, partition: int) -> None:
        """The replica is gone."""
        self._waiting.pop((topic_id, partition), None)

    @property
    def next_deadline_ms(self) -> int | None:
        """When `take_request` has something; None while an answer is awaited."""
        return None if self._sent or not self._waiting else self._due_ms

    def take_request(self, broker_epoch: int, now_ms: int) -> AssignReplicasToDirsRequest | None:
        """What to send now; its answer must be brought. None if there is nothing."""
        if self._sent or not self._waiting or self._due_ms is None or now_ms < self._due_ms:
            return None
        for key in list(self._waiting)[:PARTITIONS_PER_REQUEST_MAX]:
            self._sent[key] = self._waiting.pop(key)
        self._due_ms = None
        by_directory: dict[Uuid, dict[Uuid, list[int]]] = {}
        for (topic_id, partition), directory_id in self._sent.items():
            topics = by_directory.setdefault(directory_id, {})
            topics.setdefault(topic_id, []).append(partition)
        return AssignReplicasToDirsRequest(
            broker_id=self._broker_id,
            broker_epoch=broker_epoch,
            directories=[
                AssignReplicasToDirsRequestDirectoryData(
                    id=directory_id,
                    topics=[
                        AssignReplicasToDirsRequestTopicData(
                            topic_id=topic_id,
                            partitions=[
                                AssignReplicasToDirsRequestPartitionData(partition_index=index)
                                for index in indexes
                            ],
                        )
                        for topic_id, indexes in topics.items()
                    ],
                )
                for directory_id, topics in by_directory.items()
            ],
        )

    def answered(self, response: AssignReplicasToDirsResponse, now_ms: int) -> None:
        """The controller has answered: what failed is tried again, unless it is outdated."""
        sent, self._sent = self._sent, {}
        if response.error_code != NO_ERROR:
            failed = sent
            _logger.warning(
                "replicas could not be assigned to their directories: %s",
                error_for_code(response.error_code),
            )
        else:
            refused = set(self._refused(response))
            failed = {key: directory for key, directory in sent.items() if key in refused}
        for key, directory_id in failed.items():
            self._waiting.setdefault(key, directory_id)
        if self._waiting:
            self._due_ms = now_ms + (RETRY_MS if failed else 0)

    def _refused(self, response: AssignReplicasToDirsResponse) -> Iterator[tuple[Uuid, int]]:
        """The replicas for which it is worth trying again."""
        for directory in response.directories:
            for topic in directory.topics:
                name = self._topic_name(topic.topic_id)
                for partition in topic.partitions:
                    if name is None or partition.error_code == NO_ERROR:
                        continue
                    error = error_for_code(partition.error_code)
                    _logger.warning(
                        "%s-%d could not be assigned to directory %s: %s",
                        name,
                        partition.partition_index,
                        directory.id,
                        error,
                    )
                    if error.retriable:
                        yield topic.topic_id, partition.partition_index
