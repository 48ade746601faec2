"""What a change of the metadata means for this broker's replicas, and does it.

`ReplicaManager.apply` leads here. Deletions come first, since a topic may have been deleted and
made again in one change. A replica whose log cannot be opened is offline; the others go on. If it
was only for want of room or descriptors it is opened later, when `reopen` is called.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.errors import ApiError, InconsistentTopicId, KafkaStorageError
from millstream.metadata.cluster import is_reserved_directory
from millstream.replica.partition import Partition
from millstream.storage.faults import is_passing

if TYPE_CHECKING:
    from millstream.metadata.topics import TopicsImage
    from millstream.metadata.topics_delta import LocalPartition, TopicsDelta
    from millstream.replica.change_notifier import ChangeNotifier
    from millstream.replica.partition_table import PartitionTable
    from millstream.replica.ports import BrokerView, LogStore
    from millstream.replica.replica_fetchers import ReplicaFetchers
    from millstream.storage.log.unified_log import UnifiedLog
    from millstream.types import TopicPartition

_logger = logging.getLogger(__name__)

_UNOPENED_TOLD_EVERY_MS: Final = 10_000
_REFUSALS_PER_TURN_MAX: Final = 16
"""So many in a row, and the others are not worth a try."""


class Unopened(NamedTuple):
    """A replica whose log will be opened when that can be."""

    local: LocalPartition
    is_new: bool
    leads: bool


class ReplicaChanges:
    """Carries out what the metadata says about this broker's replicas."""

    __slots__ = (
        "_brokers",
        "_fetchers",
        "_is_first",
        "_lag_time_max_ms",
        "_local_id",
        "_notifier",
        "_store",
        "_table",
        "_told_ms",
        "unopened",
    )

    def __init__(
        self,
        table: PartitionTable,
        store: LogStore,
        notifier: ChangeNotifier,
        brokers: BrokerView,
        fetchers: ReplicaFetchers,
        *,
        local_id: int,
        lag_time_max_ms: int,
    ) -> None:
        self._fetchers = fetchers
        self._table = table
        self._store = store
        self._notifier = notifier
        self._brokers = brokers
        self._local_id = local_id
        self._lag_time_max_ms = lag_time_max_ms
        self._is_first = True
        self._told_ms: int | None = None
        self.unopened: dict[TopicPartition, Unopened] = {}
        """Replicas that are offline for want of room or descriptors."""

    def apply(self, delta: TopicsDelta, image: TopicsImage, now_ms: int) -> bool:
        """The topics are now as in `image`; whether some partition led here has followers now."""
        if self._is_first:
            self._put_strays_aside(image)
        changes = delta.local_changes(self._local_id)
        for name in changes.deleted:
            self._delete(name)
        for name, local in changes.leaders.items():
            wanted = Unopened(local, self._is_new(name, local, delta.image), leads=True)
            self._take(name, wanted, now_ms)
        for name, local in changes.followers.items():
            wanted = Unopened(local, self._is_new(name, local, delta.image), leads=False)
            self._take(name, wanted, now_ms)
        self._is_first = False
        return any(len(each.registration.replicas) > 1 for each in changes.leaders.values())

    def reopen(self, now_ms: int) -> dict[TopicPartition, Unopened]:
        """Try the logs that could not be opened again; those that are in service now."""
        opened = {}
        refusals = 0
        for name, wanted in list(self.unopened.items()):
            if refusals == _REFUSALS_PER_TURN_MAX:
                break
            del self.unopened[name], self._table.offline[name]
            self._take(name, wanted, now_ms)
            if name in self._table.offline:
                refusals += 1
            else:
                opened[name] = wanted
        if not self.unopened:
            self._told_ms = None
            _logger.info("every partition that waited for its log has it now, or has failed")
        return opened

    def fail(self, name: TopicPartition, error: KafkaStorageError) -> None:
        """A log's directory is out of service; whoever waits for the partition is told."""
        self._fetchers.stop(name)
        self.unopened.pop(name, None)
        self._table.offline[name] = error
        partition = self._table.get(name)
        if partition is not None:
            self._table.remove(partition)
            partition.fail(error)
            self._notifier.gone(partition)

    def _take(self, name: TopicPartition, wanted: Unopened, now_ms: int) -> None:
        """Lead a partition or follow its leader, as soon as it has a log."""
        partition = self._partition(name, wanted, now_ms)
        if partition is None:
            return
        if wanted.leads:
            self._lead(partition, wanted.local, now_ms)
        elif partition.become_follower(wanted.local.registration):
            partition.changed()
            self._fetchers.follow(partition)

    def _lead(self, partition: Partition, local: LocalPartition, now_ms: int) -> None:
        self._fetchers.stop(partition.name)
        try:
            is_changed = partition.become_leader(local.registration, now_ms)
        except KafkaStorageError as error:
            self._note_storage_error(partition, error)
            return
        if is_changed:
            partition.changed()

    def _note_storage_error(self, partition: Partition, error: KafkaStorageError) -> None:
        _logger.error("%s cannot be led: %s", partition.name, error)
        # The store may take the whole directory out of service, and this partition with it.
        self._store.note_error(partition.log, error)
        if partition.fault is None:
            self.fail(partition.name, error)

    def _delete(self, name: TopicPartition) -> None:
        self._fetchers.stop(name)
        self._table.offline.pop(name, None)
        self.unopened.pop(name, None)
        partition = self._table.get(name)
        if partition is not None:
            self._table.remove(partition)
            partition.resign()
            self._notifier.gone(partition)
        try:
            self._store.delete(name)
        except KafkaStorageError as error:
            _logger.warning("%s cannot be deleted: %s", name, error)

    def _is_new(self, name: TopicPartition, local: LocalPartition, before: TopicsImage) -> bool:
        topic = before.by_id.get(local.topic_id)
        is_known = topic is not None and name.partition in topic.partitions
        return not self._is_first and not is_known

    def _partition(self, name: TopicPartition, wanted: Unopened, now_ms: int) -> Partition | None:
        """The partition, with its log; None if that cannot be had."""
        known = self._table.get(name)
        if name in self.unopened:
            # It was never opened, so it is as new as it was.
            self.unopened[name] = wanted._replace(is_new=self.unopened[name].is_new)
        if known is not None or name in self._table.offline:
            return known
        local = wanted.local
        try:
            log = self._open_log(name, local, is_new=wanted.is_new)
        except ApiError as error:
            self._table.offline[name] = KafkaStorageError(str(error))
            self._note_unopened(name, wanted, error, now_ms)
            return None
        partition = Partition(
            name,
            local.topic_id,
            log,
            local_id=self._local_id,
            brokers=self._brokers,
            lag_time_max_ms=self._lag_time_max_ms,
        )
        self._notifier.attach(partition)
        self._table.add(partition)
        return partition

    def _note_unopened(
        self, name: TopicPartition, wanted: Unopened, error: ApiError, now_ms: int
    ) -> None:
        if not is_passing(error):
            _logger.error("%s is offline: %s", name, error)
            return
        self.unopened[name] = wanted
        if self._told_ms is None or now_ms - self._told_ms >= _UNOPENED_TOLD_EVERY_MS:
            self._told_ms = now_ms
            count = len(self.unopened)
            _logger.error(
                "%s is offline, as is every new partition (%d so far), until it can be opened: %s",
                name,
                count,
                error,
            )

    def _open_log(self, name: TopicPartition, local: LocalPartition, *, is_new: bool) -> UnifiedLog:
        directory = local.registration.directory_of(self._local_id)
        if directory is not None and is_reserved_directory(directory):
            directory = None
        try:
            return self._store.get_or_create(
                name, local.topic_id, is_new=is_new, directory_id=directory
            )
        except InconsistentTopicId:
            # A topic was deleted and made again while this broker was down.
            self._store.mark_stray(name)
            return self._store.get_or_create(
                name, local.topic_id, is_new=is_new, directory_id=directory
            )

    def _put_strays_aside(self, image: TopicsImage) -> None:
        """Logs from before the start that the metadata does not have for this broker."""
        for name in self._store.partitions:
            topic = image.by_name.get(name.topic)
            registration = None if topic is None else topic.partitions.get(name.partition)
            if registration is None or self._local_id not in registration.replicas:
                _logger.warning("%s is no longer of this broker; its log is put aside", name)
                self._store.mark_stray(name)
