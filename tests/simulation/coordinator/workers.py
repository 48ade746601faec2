"""Members that do something with what they read: commit how far they are, or transform it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.errors import ConcurrentTransactions
from millstream.protocol.messages import (
    FetchRequest,
    InitProducerIdRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from millstream.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from millstream.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from millstream.protocol.messages.end_txn import EndTxnRequest
from millstream.protocol.messages.fetch import FetchPartition, FetchTopic
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from millstream.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from millstream.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from millstream.records import RecordBatch, split_batches
from tests.simulation.coordinator.client import Client, Rest
from tests.simulation.coordinator.members import TOPIC, Member
from tests.simulation.coordinator.network import Ask
from tests.simulation.coordinator.producers import Identity, produce_ask

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulation.coordinator.client import Script
    from tests.simulation.coordinator.world import World

_TRIES_MAX = 8
_RETRIABLE = {7, 14, 15, 16, 19, ConcurrentTransactions.code}
"""Codes after which the same request is sent again."""


class Worker(Member):
    """Reads its partitions, a few records at a time."""

    def script(self) -> Script:
        """Stay a member, and work."""
        yield from self.prepare()
        while True:
            yield from self.membership.keep_up()
            yield from self._find_positions()
            yield from self._work()
            if self.random.random() < self.world.restlessness:
                yield from self.membership.leave()
            yield Rest(self.random.randint(30, 800))

    def prepare(self) -> Script:
        """What must be done before the first record."""
        yield from ()

    def handle(self, records: dict[int, list[tuple[int, str]]]) -> Script:
        """Do something with records, by partition with their offsets."""
        raise NotImplementedError
        yield

    def _find_positions(self) -> Script:
        wanted = [each for each, position in self.positions.items() if position is None]
        if not wanted:
            return
        promised = {each: self.world.model.promised(self.group, each) for each in wanted}
        answer = yield Ask(
            OffsetFetchRequest(
                groups=[
                    OffsetFetchRequestGroup(
                        group_id=self.group,
                        topics=[OffsetFetchRequestTopics(name=TOPIC, partition_indexes=wanted)],
                    )
                ],
                require_stable=True,
            ),
            9,
        )
        if answer is None or answer.groups[0].error_code:
            return
        for each in answer.groups[0].topics[0].partitions:
            if not each.error_code:
                offset = max(each.committed_offset, 0)
                assert offset >= promised[each.partition_index], "a committed offset went back"
                if each.partition_index in self.positions:
                    self.positions[each.partition_index] = offset

    def _work(self) -> Script:
        places = {each: at for each, at in self.positions.items() if at is not None}
        if not places:
            return
        answer = yield Ask(fetch_request(self.world, TOPIC, places), 13)
        if answer is None or answer.error_code:
            return
        found: dict[int, list[tuple[int, str]]] = {}
        for data in answer.responses[0].partitions:
            records = list(values_of(data.records or b"", places[data.partition_index]))[:3]
            if records and data.partition_index in self.positions:
                found[data.partition_index] = records
        if found:
            yield from self.handle(found)


class Committer(Worker):
    """Commits how far it has read."""

    def handle(self, records: dict[int, list[tuple[int, str]]]) -> Script:
        """One commit for all."""
        offsets = {partition: found[-1][0] + 1 for partition, found in records.items()}
        answer = yield Ask(
            OffsetCommitRequest(
                group_id=self.group,
                member_id=self.member_id,
                generation_id_or_member_epoch=self.generation,
                group_instance_id=self.instance,
                topics=[
                    OffsetCommitRequestTopic(
                        name=TOPIC,
                        partitions=[
                            OffsetCommitRequestPartition(
                                partition_index=partition, committed_offset=offset
                            )
                            for partition, offset in offsets.items()
                        ],
                    )
                ],
            ),
            9,
        )
        if answer is None:
            return
        for each in answer.topics[0].partitions:
            if not each.error_code:
                self.world.model.committed(
                    self.group, each.partition_index, offsets[each.partition_index]
                )
                if each.partition_index in self.positions:
                    self.positions[each.partition_index] = offsets[each.partition_index]


class Transformer(Worker):
    """Writes each record to the output, in transactions with the offsets."""

    def __init__(
        self,
        world: World,
        name: str,
        group: str,
        kind: str,
        instance: str | None = None,
        *,
        is_new: bool = True,
    ) -> None:
        self.identity = Identity(name)
        self.is_new = is_new
        """Whether it ends transactions as since transaction.version 2."""
        self._attempts = 0
        super().__init__(world, name, group, kind, instance)

    def prepare(self) -> Script:
        """Become the producer of its transactional id; what the one before began is aborted."""
        request = InitProducerIdRequest(
            transactional_id=self.name,
            transaction_timeout_ms=self.random.choice([4_000, 20_000]),
        )
        while True:
            answer = yield Ask(request, 5)
            if answer is not None and not answer.error_code:
                self.identity.take(answer.producer_id, answer.producer_epoch)
                self.identity.sequences.clear()
                return
            yield Rest(self.random.randint(50, 500))

    def handle(self, records: dict[int, list[tuple[int, str]]]) -> Script:
        """One transaction."""
        self._attempts += 1
        attempt = f"{self.name}#{self.identity.producer_id}.{self.identity.epoch}.{self._attempts}"
        offsets = {partition: found[-1][0] + 1 for partition, found in records.items()}
        is_whole = yield from self._write(records, attempt)
        if is_whole:
            is_whole = yield from self._commit_offsets(offsets)
        is_commit = is_whole and self.random.random() < 0.9
        if is_commit:
            self.world.model.asks_to_commit(attempt)
        has_ended = yield from self._end(is_commit=is_commit)
        if has_ended and is_commit:
            self.world.model.transaction_committed(self.group, offsets)
            for partition, offset in offsets.items():
                if partition in self.positions:
                    self.positions[partition] = offset
            return
        # Where to go on is what the coordinator says.
        self.positions = dict.fromkeys(self.positions)
        if not has_ended or not self.is_new:
            yield from self.prepare()

    def _write(self, records: dict[int, list[tuple[int, str]]], attempt: str) -> Script:
        by_target: dict[int, list[str]] = {}
        for partition, found in records.items():
            for offset, _ in found:
                by_target.setdefault(offset % 2, []).append(f"{partition}/{offset}|{attempt}")
        if not self.is_new:
            is_added = yield from self._add(by_target)
            if not is_added:
                return False
        for target, values in by_target.items():
            sequence = self.identity.sequences.get(("output", target), 0)
            wall_ms = self.world.schedule.clock.wall_ms()
            batch = self.identity.batch(wall_ms, values, sequence)
            version = 13 if self.is_new else 11
            ask = produce_ask(self.world, self.identity, "output", target, batch, version)
            is_written = yield from self._until_ok(ask, _produce_code)
            if not is_written:
                return False
            self.identity.sequences["output", target] = sequence + len(values)
        return True

    def _add(self, partitions: Iterable[int]) -> Script:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name="output", partitions=list(partitions))
            ],
        )
        is_added = yield from self._until_ok(Ask(request, 3), _added_code)
        if not is_added:
            return False
        with_offsets = AddOffsetsToTxnRequest(
            transactional_id=self.name,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            group_id=self.group,
        )
        return (yield from self._until_ok(Ask(with_offsets, 3), _code))

    def _commit_offsets(self, offsets: dict[int, int]) -> Script:
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=self.group,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=TOPIC,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset
                        )
                        for partition, offset in offsets.items()
                    ],
                )
            ],
        )
        return (yield from self._until_ok(Ask(request, 5 if self.is_new else 3), _offsets_code))

    def _end(self, *, is_commit: bool) -> Script:
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            committed=is_commit,
        )
        answer = yield from self._ask_until_ok(Ask(request, 5 if self.is_new else 4), _code)
        if answer is None:
            return False
        if self.is_new:
            self.identity.take(answer.producer_id, answer.producer_epoch)
        return True

    def _until_ok(self, ask: Ask, code_of: Any) -> Script:
        answer = yield from self._ask_until_ok(ask, code_of)
        return answer is not None

    def _ask_until_ok(self, ask: Ask, code_of: Any) -> Script:
        """The answer without an error; None if it gives up."""
        for _ in range(_TRIES_MAX):
            answer = yield ask
            if answer is not None:
                code = code_of(answer)
                if not code:
                    return answer
                if code not in _RETRIABLE:
                    return None
            yield Rest(self.random.randint(20, 400))
        return None


class CommittedReader(Client):
    """Reads the output as far as it is decided, again and again from the start."""

    def script(self) -> Script:
        """Read, and tell the model."""
        while True:
            for partition in range(2):
                yield from self._read(partition)
            yield Rest(self.random.randint(500, 4_000))

    def _read(self, partition: int) -> Script:
        request = fetch_request(self.world, "output", {partition: 0}, isolation_level=1)
        answer = yield Ask(request, 13)
        if answer is None or answer.error_code:
            return
        (data,) = answer.responses[0].partitions
        aborted = sorted(
            (each.first_offset, each.producer_id) for each in data.aborted_transactions or ()
        )
        skipped: set[int] = set()
        for batch in split_batches(data.records or b""):
            assert isinstance(batch, RecordBatch)
            while aborted and aborted[0][0] < batch.next_offset:
                skipped.add(aborted.pop(0)[1])
            if batch.is_control:
                skipped.discard(batch.producer_id)
                continue
            assert batch.next_offset <= data.last_stable_offset, "read beyond what is decided"
            if batch.producer_id not in skipped:
                for record in batch.records():
                    value = bytes(record.value or b"").decode()
                    self.world.model.seen(partition, record.offset, value)


def fetch_request(
    world: World, topic: str, places: dict[int, int], *, isolation_level: int = 0
) -> FetchRequest:
    """Read some partitions from some offsets on."""
    topic_id = world.broker.metadata.topic_id(topic)
    assert topic_id is not None
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=isolation_level,
        topics=[
            FetchTopic(
                topic_id=topic_id,
                partitions=[
                    FetchPartition(
                        partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20
                    )
                    for partition, offset in places.items()
                ],
            )
        ],
    )


def values_of(data: Any, from_offset: int) -> Iterable[tuple[int, str]]:
    """Offset and value of the records in what was fetched."""
    for batch in split_batches(data):
        assert isinstance(batch, RecordBatch)
        for record in batch.records(from_offset):
            if record.offset >= from_offset:
                yield record.offset, bytes(record.value or b"").decode()


def _code(answer: Any) -> int:
    code: int = answer.error_code
    return code


def _produce_code(answer: Any) -> int:
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def _added_code(answer: Any) -> int:
    results = answer.results_by_topic_v3_and_below[0].results_by_partition
    codes: list[int] = [each.partition_error_code for each in results]
    return max(codes)


def _offsets_code(answer: Any) -> int:
    codes: list[int] = [each.error_code for each in answer.topics[0].partitions]
    return max(codes)
