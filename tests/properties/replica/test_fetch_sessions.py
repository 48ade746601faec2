"""A session says the same as full fetches: its answers, put together, are the whole picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.unit.replica.harness import LOCAL, World, asked
from tests.unit.storage.batches import batch_bytes

if TYPE_CHECKING:
    from millstream.replica.fetch_partition import FetchPartitionData
    from millstream.replica.fetch_session import FetchAnswer

PARTITIONS = 4
INDEX = st.integers(0, PARTITIONS - 1)
BATCH = len(batch_bytes())


def outline(result: FetchPartitionData) -> tuple[int, int, int]:
    """What a client keeps of an answer: error, high watermark, log start."""
    code = 0 if result.error is None else result.error.code
    return code, result.high_watermark, result.log_start_offset


class SessionMachine(RuleBasedStateMachine):
    """A client with a session, beside one that asks for everything each time."""

    @initialize(first=st.sets(INDEX, min_size=1))
    def begin(self, first: set[int]) -> None:
        """A topic with a follower, and a client that begins with some partitions."""
        self.world = World()
        self.world.register(2)
        self.world.create(partitions=PARTITIONS, replicas=(LOCAL, 2))
        self.exists = True
        self.generation = 0
        self.offsets = dict.fromkeys(sorted(first), 0)
        """What the client fetches, and from where."""
        self.changed: set[int] = set()
        """What the session does not know yet of that."""
        self.forgotten: set[int] = set()
        self.known: dict[int, tuple[int, int, int]] = {}
        self.session = self.epoch = 0
        self.fetch(1 << 20)

    # The partitions change.

    @rule(index=INDEX)
    def produce(self, index: int) -> None:
        """A record, not committed yet."""
        if self.exists:
            self.world.produce(index=index, acks=1)

    @rule(index=INDEX)
    def commit(self, index: int) -> None:
        """The follower has everything."""
        if self.exists:
            end = self.world.partition(index=index).log.log_end_offset
            self.world.fetch(
                asked(end, index=index, log_start_offset=0), replica_id=2, replica_epoch=1
            )

    @rule(index=INDEX)
    def delete_records(self, index: int) -> None:
        """The log start moves to the high watermark."""
        if self.exists:
            self.world.manager.delete_records([("t", index, -1)], 0, lambda _: None)

    @rule()
    def delete_or_create_topic(self) -> None:
        """The topic goes, or comes back empty."""
        if self.exists:
            self.world.remove(generation=self.generation)
        else:
            self.generation += 1
            self.world.create(
                partitions=PARTITIONS, replicas=(LOCAL, 2), generation=self.generation
            )
        self.exists = not self.exists

    @rule()
    def settle(self) -> None:
        """What was deferred happens."""
        self.world.settle()

    # The client changes its mind.

    @rule(index=INDEX, offset=st.integers(0, 6))
    def seek(self, index: int, offset: int) -> None:
        """Fetch a partition, from an offset on."""
        self.offsets[index] = offset
        self.changed.add(index)
        self.forgotten.discard(index)

    @rule(index=INDEX)
    def forget(self, index: int) -> None:
        """Fetch it no more."""
        if index in self.offsets and len(self.offsets) > 1:
            del self.offsets[index]
            self.changed.discard(index)
            self.forgotten.add(index)

    @rule(max_bytes=st.sampled_from([1, BATCH, 3 * BATCH, 1 << 20]), progresses=st.booleans())
    def fetch(self, max_bytes: int, progresses: bool = False) -> None:
        """The next request of the session, and what it says."""
        indexes = sorted(self.offsets if self.epoch == 0 else self.changed)
        answer = self.world.fetch(
            *(asked(self.offsets[index], index=index) for index in indexes),
            session=(self.session, self.epoch),
            forgotten=[("t", index) for index in sorted(self.forgotten)],
            max_bytes=max_bytes,
        ).value
        assert answer.error is None
        assert answer.session_id
        self.session, self.epoch = answer.session_id, self.epoch + 1
        for index in self.forgotten:
            self.known.pop(index, None)
        self.changed.clear()
        self.forgotten.clear()
        self.take(answer)
        self.compare()
        if progresses:
            self.follow_records(answer)

    def take(self, answer: FetchAnswer) -> None:
        """What a client does with an answer."""
        gave_records = False
        for each, result in answer.partitions:
            self.known[each.index] = outline(result)
            gave_records = gave_records or result.size > 0
        # Somebody who has records to give is never passed over for ever: one of them comes.
        full = self.full()
        assert gave_records == any(result.size for result in full.values())

    def follow_records(self, answer: FetchAnswer) -> None:
        """The client reads a record of each partition that gave some."""
        for each, result in answer.partitions:
            if result.size:
                self.offsets[each.index] += 1
                self.changed.add(each.index)

    def full(self) -> dict[int, FetchPartitionData]:
        """What a client without a session would see now."""
        answer = self.world.fetch(
            *(asked(offset, index=index) for index, offset in self.offsets.items())
        ).value
        return {each.index: result for each, result in answer.partitions}

    def compare(self) -> None:
        """The client's picture is the truth, for every partition it fetches."""
        full = {index: outline(result) for index, result in self.full().items()}
        assert {index: self.known.get(index) for index in self.offsets} == full


SessionMachine.TestCase.settings = settings(stateful_step_count=40)
TestSessions = SessionMachine.TestCase
