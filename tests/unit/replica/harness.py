"""A replica manager on one thread, over real logs on a simulated disk.

Metadata comes as records, time stands still, and what is deferred waits until the test lets it run.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.clock import ManualClock
from millstream.metadata.cache import KRaftMetadataCache
from millstream.metadata.delta import MetadataDelta
from millstream.metadata.image import MetadataProvenance
from millstream.protocol.messages.broker_records import (
    BrokerEndpoint,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
)
from millstream.protocol.messages.topic_records import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from millstream.replica.config import ReplicaConfig
from millstream.replica.fetch_partition import FetchPartition
from millstream.replica.fetch_service import FetchParams
from millstream.replica.replica_manager import ReplicaManager
from millstream.storage.background import Background
from millstream.storage.log.config import LogConfig
from millstream.storage.log.log_results import FetchIsolation
from millstream.storage.manager.broker_config import LogManagerConfig
from millstream.storage.manager.log_directory import format_directory
from millstream.storage.manager.log_manager import LogManager
from millstream.testing.sim_filesystem import SimFileSystem
from millstream.types import Uuid
from tests.unit.replica.fakes import FakeController, InlineExecutor
from tests.unit.storage.batches import NOW_MS, batch_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.protocol.message import Message
    from millstream.replica.append_service import AppendResult
    from millstream.replica.fetch_session import FetchAnswer, FetchContext
    from millstream.replica.partition import Partition
    from millstream.replica.ports import RunOnWorker, TransactionVerifier
    from millstream.replica.record_deletion import DeleteResult
    from millstream.replica.replica_selector import ReplicaSelector

ValueT = TypeVar("ValueT")

LOCAL = 1
"""This broker."""
LAG_MS = 30_000


def topic_id(name: str, generation: int = 0) -> Uuid:
    """The id of a topic in tests: its name, and how often it was made anew."""
    return Uuid(name.encode().ljust(15, b"_")[-15:] + bytes([65 + generation]))


class Reply(Generic[ValueT]):
    """What a request gets, now or later; never twice."""

    def __init__(self) -> None:
        self._values: list[ValueT] = []

    def take(self, value: ValueT | None) -> None:
        """What the call itself returned."""
        if value is not None:
            self.answer(value)

    def answer(self, value: ValueT) -> None:
        """The answer has come."""
        assert not self._values, "a request was answered twice"
        self._values.append(value)

    @property
    def is_pending(self) -> bool:
        """Whether it has not come yet."""
        return not self._values

    @property
    def value(self) -> ValueT:
        """It must have come."""
        return self._values[0]


class World:
    """One broker's replicas and everything around them."""

    def __init__(
        self,
        *,
        slots: int = 1000,
        directories: tuple[str, ...] = ("/disk1",),
        run_on_worker: RunOnWorker | None = None,
        verifier: TransactionVerifier | None = None,
        selector: ReplicaSelector | None = None,
        filesystem: SimFileSystem | None = None,
        fetch_max_bytes: int = 55 << 20,
    ) -> None:
        self.clock = ManualClock(NOW_MS)
        self.events: deque[Callable[[], None]] = deque()
        self.configs: dict[str, LogConfig] = {}
        self.filesystem = filesystem or SimFileSystem(Random(1))
        self.cache = KRaftMetadataCache()
        self.controller = FakeController()
        self.alarms: list[int] = []
        self.store = LogManager(
            LogManagerConfig(log_dirs=directories),
            cluster_id="tests",
            node_id=LOCAL,
            filesystem=self.filesystem,
            clock=self.clock,
            random=Random(2),
            background=Background(
                self.events.append, lambda _: self.events.append, lambda _: InlineExecutor()
            ),
            config_for=lambda topic: self.configs.get(topic, LogConfig()),
            on_directory_failure=lambda failure: self.manager.fail_directory(failure),
        )
        if filesystem is None:
            random = Random(3)
            for path in directories:
                format_directory(self.filesystem, path, "tests", LOCAL, random)
        self.store.start()
        self.manager = ReplicaManager(
            ReplicaConfig(
                fetch_session_slots=slots,
                replica_lag_time_max_ms=LAG_MS,
                fetch_max_bytes=fetch_max_bytes,
            ),
            broker_id=LOCAL,
            store=self.store,
            cache=self.cache,
            clock=self.clock,
            random=Random(4),
            defer=self.events.append,
            arm=self.alarms.append,
            alterer=self.controller,
            run_on_worker=run_on_worker,
            verifier=verifier,
            selector=selector,
        )
        self.register(LOCAL)

    # Metadata.

    def publish(self, *records: Message) -> None:
        """The metadata log goes on."""
        delta = MetadataDelta(self.cache.image)
        delta.replay_all(records)
        image = delta.apply(MetadataProvenance())
        self.cache.image = image
        if delta.touches("topics"):
            self.manager.apply(delta.topics, image.topics)

    def register(self, broker_id: int, *, epoch: int = 1, rack: str | None = None) -> None:
        """A broker joins, unfenced."""
        self.publish(
            RegisterBrokerRecord(
                broker_id=broker_id,
                broker_epoch=epoch,
                fenced=False,
                rack=rack,
                end_points=[BrokerEndpoint(name="PLAINTEXT", host="h", port=9092)],
            )
        )

    def fence(self, broker_id: int, *, epoch: int = 1) -> None:
        """A broker is no longer heard of."""
        self.publish(FenceBrokerRecord(id=broker_id, epoch=epoch))

    def unfence(self, broker_id: int, *, epoch: int = 1) -> None:
        """It is heard of again."""
        self.publish(UnfenceBrokerRecord(id=broker_id, epoch=epoch))

    def create(
        self, name: str = "t", partitions: int = 1, *, config: LogConfig | None = None, **how: Any
    ) -> None:
        """A topic comes."""
        if config is not None:
            self.configs[name] = config
        self.publish(*topic_records(name, partitions, **how))

    def change(self, name: str = "t", index: int = 0, **changes: Any) -> None:
        """A partition changes."""
        record = PartitionChangeRecord(partition_id=index, topic_id=topic_id(name), **changes)
        self.publish(record)

    def remove(self, name: str = "t", generation: int = 0) -> None:
        """A topic goes."""
        self.publish(RemoveTopicRecord(topic_id=topic_id(name, generation)))

    def configure(self, name: str, config: LogConfig) -> None:
        """A topic gets other settings."""
        self.configs[name] = config
        self.store.update_topic_config(name, config)
        self.manager.note_topic_config(name)

    # Time and what is deferred.

    def settle(self) -> None:
        """Let everything deferred happen."""
        while self.events:
            self.events.popleft()()

    def settle_wakes(self) -> None:
        """The same, but only what is at hand now: not what that brings about."""
        for _ in range(len(self.events)):
            self.events.popleft()()

    def pass_time(self, ms: int) -> None:
        """Let time pass, and what becomes due happen."""
        self.clock.advance(ms)
        self.manager.tick()
        self.settle()

    # Requests.

    def partition(self, name: str = "t", index: int = 0) -> Partition:
        """A partition that must be here."""
        return self.manager.partition(name, index)

    def produce(
        self,
        *batches: bytes,
        topic: str | Uuid = "t",
        index: int = 0,
        acks: int = -1,
        timeout_ms: int = 1000,
        **options: Any,
    ) -> Reply[list[AppendResult]]:
        """Append one batch, or the given ones to partitions index, index + 1, ..."""
        given = batches or (batch_bytes(),)
        entries = [(topic, index + i, bytearray(each)) for i, each in enumerate(given)]
        reply: Reply[list[AppendResult]] = Reply()
        reply.take(self.manager.append(entries, acks, timeout_ms, reply.answer, **options))
        return reply

    def open(
        self, *partitions: FetchPartition, session: tuple[int, int] = (0, -1), **options: Any
    ) -> FetchContext:
        """The context of a fetch."""
        return self.manager.fetch_sessions.open(
            *session, list(partitions), now_ms=self.clock.monotonic_ms(), **options
        )

    def fetch(
        self,
        *partitions: FetchPartition,
        session: tuple[int, int] = (0, -1),
        forgotten: Sequence[tuple[str | Uuid, int]] = (),
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
        replica_id: int = -1,
        replica_epoch: int = -1,
        rack_id: str = "",
        needs_leader: bool = False,
        uses_topic_ids: bool = False,
    ) -> Reply[FetchAnswer]:
        """Fetch, at once unless `max_wait_ms` says otherwise."""
        context = self.open(
            *partitions,
            session=session,
            forgotten=forgotten,
            is_follower=replica_id >= 0,
            uses_topic_ids=uses_topic_ids,
        )
        params = FetchParams(
            max_wait_ms,
            min_bytes,
            max_bytes,
            isolation,
            replica_id,
            replica_epoch,
            needs_leader,
            rack_id,
        )
        reply: Reply[FetchAnswer] = Reply()
        reply.take(self.manager.fetch(context, params, reply.answer))
        return reply

    def follow(
        self, offset: int, *, broker: int = 2, epoch: int = 1, index: int = 0, **options: Any
    ) -> FetchAnswer:
        """A follower fetches from its end on; what it gets at once."""
        reply = self.fetch(
            asked(
                offset, index=index, log_start_offset=options.pop("log_start_offset", 0), **options
            ),
            replica_id=broker,
            replica_epoch=epoch,
        )
        return reply.value

    def delete(
        self, offset: int, *, topic: str = "t", timeout_ms: int = 1000
    ) -> Reply[list[DeleteResult]]:
        """Delete what is before an offset."""
        reply: Reply[list[DeleteResult]] = Reply()
        reply.take(self.manager.delete_records([(topic, 0, offset)], timeout_ms, reply.answer))
        return reply


def topic_records(
    name: str = "t",
    partitions: int = 1,
    *,
    replicas: Sequence[int] = (LOCAL,),
    isr: Sequence[int] | None = None,
    leader: int | None = None,
    generation: int = 0,
) -> list[Message]:
    """A topic, as the metadata log has it."""
    records: list[Message] = [TopicRecord(name=name, topic_id=topic_id(name, generation))]
    records += [
        PartitionRecord(
            partition_id=index,
            topic_id=topic_id(name, generation),
            replicas=list(replicas),
            isr=list(replicas if isr is None else isr),
            leader=replicas[0] if leader is None else leader,
            leader_epoch=0,
            partition_epoch=0,
        )
        for index in range(partitions)
    ]
    return records


def asked(
    offset: int,
    topic: str | Uuid = "t",
    index: int = 0,
    *,
    max_bytes: int = 1 << 20,
    leader_epoch: int = -1,
    fetched_epoch: int = -1,
    log_start_offset: int = -1,
) -> FetchPartition:
    """What a fetch asks of one partition."""
    return FetchPartition(
        topic, index, offset, max_bytes, leader_epoch, fetched_epoch, log_start_offset
    )


def sizes(answer: FetchAnswer) -> list[int]:
    """How many bytes each partition gave."""
    return [result.size for _, result in answer.partitions]


def error_codes(answer: FetchAnswer) -> list[int]:
    """The error of each partition; 0 is none."""
    return [0 if result.error is None else result.error.code for _, result in answer.partitions]


def codes(results: Sequence[AppendResult] | Sequence[DeleteResult]) -> list[int]:
    """The error of each result; 0 is none."""
    return [0 if result.error is None else result.error.code for result in results]
