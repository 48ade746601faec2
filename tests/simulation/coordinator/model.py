"""What must be true: what clients were promised, and what the broker has made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.coordinator.group.classic.group import ClassicGroup
from millstream.coordinator.group.consumer.group import ConsumerGroup
from millstream.records import RecordBatch, split_batches

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.simulation.coordinator.broker import SimBroker
    from tests.simulation.coordinator.members import Member


class Model:
    """Promises of a run."""

    def __init__(self) -> None:
        self._to_write: dict[int, list[list[str]]] = {}
        self._offsets: dict[tuple[int, str], int] = {}
        self._acked: dict[tuple[str, int], int] = {}
        self._stable: dict[tuple[str, int], int] = {}
        self._asked_to_commit: set[str] = set()
        self._seen: dict[tuple[int, int], str] = {}

    # What clients tell.

    def will_write(self, partition: int, values: Sequence[str]) -> None:
        """A producer is going to write these, in this order."""
        self._to_write.setdefault(partition, []).append(list(values))

    def written(self, partition: int, value: str, offset: int) -> None:
        """A record was acknowledged; again, perhaps, and then with the same offset."""
        assert self._offsets.setdefault((partition, value), offset) == offset, (value, offset)

    def committed(self, group: str, partition: int, offset: int) -> None:
        """A commit of a member was acknowledged."""
        known = self._acked.get((group, partition), 0)
        self._acked[group, partition] = max(known, offset)

    def transaction_committed(self, group: str, offsets: dict[int, int]) -> None:
        """The end of a transaction with offsets was acknowledged."""
        for partition, offset in offsets.items():
            known = self._stable.get((group, partition), 0)
            self._stable[group, partition] = max(known, offset)

    def promised(self, group: str, partition: int) -> int:
        """Where a member must go on at least, if it asks now."""
        place = (group, partition)
        return max(self._stable.get(place, 0), self._acked.get(place, 0))

    def asks_to_commit(self, attempt: str) -> None:
        """The producer of a transaction wants its records to be seen."""
        self._asked_to_commit.add(attempt)

    def seen(self, partition: int, offset: int, value: str) -> None:
        """A reader of committed records was given one of the output."""
        attempt = value.split("|")[1]
        assert attempt in self._asked_to_commit, f"{value} is of a transaction nobody committed"
        assert self._seen.setdefault((partition, offset), value) == value

    # What must hold after every event.

    def check(self, broker: SimBroker, members: Sequence[Member]) -> None:
        """Offsets never go back; no partition is with two members."""
        for shard in broker.group_shards():
            for (group, partition), promised in self._acked.items():
                if group not in shard.groups:
                    continue
                found = shard.offsets.committed.get(group, "input", partition)
                offset = -1 if found is None else found.offset
                assert offset >= promised, f"{group}/{partition}: {offset} after {promised}"
            for group_id, known in shard.groups.items():
                if isinstance(known, ConsumerGroup):
                    _check_exclusive(known)
                if isinstance(known, ConsumerGroup | ClassicGroup):
                    _check_beliefs(group_id, known, members)

    # What must hold in the end.

    def check_input(self, broker: SimBroker) -> None:
        """Every record of an idempotent producer is there, once and in order."""
        for partition, runs in self._to_write.items():
            found = [value for _, value, _ in records_of(broker, "input", partition)]
            assert sorted(found) == sorted(value for run in runs for value in run)
            for run in runs:
                wanted = set(run)
                assert [value for value in found if value in wanted] == run

    def check_output(self, broker: SimBroker, group: str) -> None:
        """Every record of the input was transformed once, whatever happened to the workers."""
        made: list[str] = []
        for partition in range(2):
            log = broker.partition("output", partition).log
            assert log.last_stable_offset == log.log_end_offset, "a transaction hangs"
            made += [value.split("|")[0] for value in committed_records(broker, partition)]
        wanted = [
            f"{partition}/{offset}"
            for partition in range(4)
            for offset, _, _ in records_of(broker, "input", partition)
        ]
        assert sorted(made) == sorted(wanted), _difference(made, wanted)


def _difference(made: Sequence[str], wanted: Sequence[str]) -> str:
    twice = sorted({each for each in made if made.count(each) > 1})
    return f"lost {sorted(set(wanted) - set(made))}, twice {twice}"


def _check_exclusive(group: ConsumerGroup) -> None:
    owners: dict[tuple[Any, int], str] = {}
    for member in group.members.values():
        for owned in (member.progress.assigned, member.progress.pending_revocation):
            for topic, partitions in owned.items():
                for partition in partitions:
                    other = owners.setdefault((topic, partition), member.member_id)
                    assert other == member.member_id, f"{partition} is with two members"


def _check_beliefs(
    group_id: str, group: ConsumerGroup | ClassicGroup, members: Sequence[Member]
) -> None:
    """Who is no member any more may believe what it likes: it is fenced when it commits."""
    owners: dict[int, Member] = {}
    for member in members:
        if member.group != group_id or member.member_id not in group.members:
            continue
        if member.instance is not None and member.generation < _generation(group, member):
            # A static member that missed a rebalance stays a member, without its partitions.
            continue
        for partition in member.positions:
            other = owners.setdefault(partition, member)
            assert other is member, f"{other.name} and {member.name} both read {partition}"


def _generation(group: ConsumerGroup | ClassicGroup, member: Member) -> int:
    if isinstance(group, ClassicGroup):
        return group.generation
    return group.members[member.member_id].epoch


def records_of(
    broker: SimBroker, topic: str, partition: int
) -> Iterator[tuple[int, str, RecordBatch]]:
    """Offset, value and batch of every record in a log, markers aside."""
    for batch in _batches(broker, topic, partition):
        if not batch.is_control:
            for record in batch.records():
                assert record.value is not None
                yield record.offset, bytes(record.value).decode(), batch


def _batches(broker: SimBroker, topic: str, partition: int) -> list[RecordBatch]:
    found = broker.partition(topic, partition).log.read(0, 1 << 24)
    data = b"" if found.records is None else bytes(found.records.read())
    return [each for each in split_batches(data) if isinstance(each, RecordBatch)]


def committed_records(broker: SimBroker, partition: int) -> list[str]:
    """The values in the output whose transaction has ended with a commit, by its markers."""
    from millstream.records import ControlType, control_type

    open_values: dict[int, list[str]] = {}
    found: list[str] = []
    for batch in _batches(broker, "output", partition):
        if batch.is_control:
            (marker,) = batch.records()
            values = open_values.pop(batch.producer_id, [])
            if control_type(marker) is ControlType.COMMIT:
                found += values
            continue
        values = [bytes(each.value or b"").decode() for each in batch.records()]
        open_values.setdefault(batch.producer_id, []).extend(values)
    return found
