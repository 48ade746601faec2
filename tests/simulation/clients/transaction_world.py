"""One run of transactions: producers that follow each other, a reader of what is committed, faults.

A transaction that was committed is read whole and once, one that was aborted never; of one whose
end nobody was told, all or nothing. The offsets of a group share the fate of the records.
"""

from __future__ import annotations

from enum import Enum
from random import Random
from typing import TYPE_CHECKING

from millstream.client.groups import ConsumerGroupMetadata, OffsetAndMetadata
from millstream.client.producer.config import ProducerConfig
from millstream.client.producer.core import ProducerCore
from millstream.client.producer.partition_queues import MemoryNotFree, TopicNotKnown
from millstream.client.producer.transactions.state import State
from millstream.clock import ManualClock
from millstream.errors import MillstreamError
from millstream.types import TopicPartition
from tests.simulation.clients.brokers import SimBrokers
from tests.simulation.clients.faults import Faults
from tests.simulation.clients.reader import Reader
from tests.simulation.producer.cluster import TOPIC
from tests.simulation.producer.network import SimSelector
from tests.simulation.producer.world import ACCUMULATORS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.client.futures import Waiter

END_MS = 36_000_000
LATE_MS_MAX = 1_000


class Fate(Enum):
    """What is known of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "its end was not told"


class TransactionWorld:
    """One transactional id, its producers one after the other, and a reader."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random = Random(seed)
        self.clock = ManualClock()
        self.brokers = SimBrokers(
            random.randint(1, 3), random.randint(1, 3), Random(random.random())
        )
        self.brokers.hints = self.brokers.reading.hints = random.random() < 0.5
        self.brokers.transactions.is_implicit = random.random() < 0.5
        self.reader = Reader(
            self.brokers, self.clock, Random(random.random()), isolation_level="read_committed"
        )
        self.cores: list[ProducerCore] = []
        self.selectors: list[SimSelector] = []
        self.break_chance = random.choice([0.0, 0.02, 0.08])
        self.reader.selector.break_chance = self.break_chance
        self.faults = Faults(
            self.brokers,
            self.clock,
            Random(random.random()),
            lambda: (self.reader.selector, *self.selectors),
        )
        self.has_faults = True
        self.fates: list[Fate] = []
        self.written: list[list[bytes]] = []
        self.with_offsets: set[int] = set()
        """The transactions that have taken a group's offset: each its own number."""
        self._trace: list[str] | None = None

    def begin_trace(self) -> None:
        """Keep what happens from now on."""
        self._trace = []

    @property
    def trace(self) -> Sequence[str]:
        """What was kept."""
        return self._trace or ()

    def note(self, what: str) -> None:
        """Keep a line, if somebody wants it."""
        if self._trace is not None:
            self._trace.append(f"{self.clock.monotonic_ms()}: {what}")

    def run(self) -> None:
        """Transactions with faults; heal; a last one; read to the end; check."""
        for _ in range(self.random.randint(3, 12)):
            if not self.cores or self.random.random() < 0.15:
                self._open_producer()
            self._transact()
        self.has_faults = False
        self.faults.end()
        # A late request of an older producer would shut out the last one.
        self._until_ms(self.clock.monotonic_ms() + 2 * LATE_MS_MAX)
        self._open_producer()
        self._transact()
        assert self.fates[-1] is not Fate.UNKNOWN, "without faults every end is told"
        self._until(lambda: self.reader.is_at_end(is_committed=True))
        self._check()

    # ---- producers ----

    def _open_producer(self) -> None:
        """A newer producer with the same id; the older ones are shut out, but do not know yet."""
        selector = SimSelector(self.brokers, self.clock, Random(self.random.random()))
        selector.delay_ms_max = self.random.choice([0, 2, 20])
        if self.brokers.transactions.is_implicit:
            # In the first version a late request can end the next transaction: KIP-890 says why.
            selector.late_ms_max = self.random.choice([0, LATE_MS_MAX])
        selector.break_chance = self.break_chance if self.has_faults else 0.0
        core = ProducerCore(
            ProducerConfig(
                bootstrap_servers=("broker-1:9092",),
                transactional_id="transactional",
                linger_ms=self.random.choice([0, 5]),
                batch_size=self.random.choice([100, 2000]),
                request_timeout_ms=self.random.choice([500, 30_000]),
                delivery_timeout_ms=self.random.choice([40_000, 2_000_000]),
            ),
            selector=selector,
            clock=self.clock,
            random=Random(self.random.random()),
            accumulator=ACCUMULATORS[self.seed % len(ACCUMULATORS)],
        )
        self.cores.append(core)
        self.selectors.append(selector)
        waiting = core.wait_for_topic(TOPIC, -1)
        self._until(waiting.done)
        assert core.transactions is not None
        self.note(f"producer {len(self.cores)}")
        self._finish(core.call(core.transactions.initialize, "init_transactions"))

    def _transact(self) -> None:
        """One transaction of the newest producer, or of an older one, which must fail."""
        index = len(self.cores) - 1
        if index and self.has_faults and self.random.random() < 0.1:
            index = self.random.randrange(index)
        core = self.cores[index]
        number = len(self.fates)
        self.fates.append(Fate.ABORTED)
        self.written.append([])
        try:
            fate = self._attempt(core, number)
        except MillstreamError as error:
            self.note(f"transaction {number}: {error!r}")
            fate = self._after_failure(core, number)
        self.note(f"transaction {number} of producer {index + 1}: {fate}")
        self.fates[number] = fate
        if (
            core.transactions is not None
            and core.transactions.state is State.FATAL
            and (core is self.cores[-1])
        ):
            self._open_producer()

    def _attempt(self, core: ProducerCore, number: int) -> Fate:
        manager = core.transactions
        assert manager is not None
        self._finish(core.call(lambda _: manager.begin(), "begin"))
        for _ in range(self.random.randint(1, 5)):
            self._write(core, number)
            self._turn()
            if self.has_faults and self.random.random() < 0.02:
                self.brokers.transactions.expire()
                self.note("expired")
        if self.random.random() < 0.5:
            self._send_offset(core, number)
        if self.random.random() < 0.3:
            self._finish(core.call(manager.abort, "abort"))
            return Fate.ABORTED
        # From here on it may be committed, whatever we hear.
        self.fates[number] = Fate.UNKNOWN
        self._finish(core.call(manager.commit, "commit"))
        return Fate.COMMITTED

    def _send_offset(self, core: ProducerCore, number: int) -> None:
        manager = core.transactions
        assert manager is not None
        offsets = {TopicPartition(TOPIC, 0): OffsetAndMetadata(number)}
        group = ConsumerGroupMetadata("group")
        self._finish(
            core.call(lambda now_ms: manager.send_offsets(offsets, group, now_ms), "send_offsets")
        )
        self.with_offsets.add(number)

    def _after_failure(self, core: ProducerCore, number: int) -> Fate:
        """Abort, if that is possible; then nothing of it may be read."""
        manager = core.transactions
        assert manager is not None
        if manager.state not in (State.ABORTABLE, State.IN_TRANSACTION):
            return self.fates[number]
        try:
            self._finish(core.call(manager.abort, "abort"))
        except MillstreamError as error:
            self.note(f"abort of {number}: {error!r}")
            return self.fates[number]
        return Fate.ABORTED

    def _write(self, core: ProducerCore, number: int) -> None:
        assert core.transactions is not None
        core.transactions.require_open()
        for _ in range(self.random.choice([0, 1, 3, 10])):
            value = b"%04d-%04d" % (number, len(self.written[number]))
            key = self.random.choice([None, b"%d" % self.random.randint(0, 5)])
            try:
                core.accumulator.append(TOPIC, -1, key, value)
            except (TopicNotKnown, MemoryNotFree):
                return
            self.written[number].append(value)

    # ---- time ----

    def _turn(self) -> None:
        if self.has_faults:
            self.faults.happen()
        for core in self.cores:
            core.runtime.run_once(self.random.choice([1, 5, 50]))
        self.reader.turn()

    def _until(self, is_reached: Callable[[], bool]) -> None:
        limit_ms = self.clock.monotonic_ms() + END_MS
        while not is_reached():
            assert self.clock.monotonic_ms() < limit_ms, "it does not come to an end"
            self._turn()

    def _until_ms(self, time_ms: int) -> None:
        self._until(lambda: self.clock.monotonic_ms() >= time_ms)

    def _finish(self, waiter: Waiter[None]) -> None:
        self._until(waiter.done)
        waiter.result(0)

    # ---- promises ----

    def _check(self) -> None:
        self.reader.check_end(is_committed=True)
        read = [value for seen in self.reader.seen.values() for _, value in seen]
        assert len(read) == len(set(read)), "a record was read twice"
        for number, (fate, written) in enumerate(zip(self.fates, self.written, strict=True)):
            found = [value for value in read if value.startswith(b"%04d-" % number)]
            if fate is Fate.COMMITTED:
                assert sorted(found) == written, f"transaction {number} is not whole"
            elif fate is Fate.ABORTED:
                assert not found, f"transaction {number} was aborted and read"
            else:
                assert sorted(found) in ([], written), f"transaction {number} is in parts"
        self._check_offsets(read)
        for seen in self.reader.seen.values():
            values = [value for _, value in seen]
            assert values == sorted(values), "out of order"
        for core in self.cores:
            core.dispatcher.stop(10)

    def _check_offsets(self, read: Sequence[bytes]) -> None:
        found = self.brokers.transactions.group_offsets
        assert found == sorted(set(found)), "an offset was committed twice, or late"
        for number, fate in enumerate(self.fates):
            if fate is Fate.COMMITTED:
                assert (number in found) is (number in self.with_offsets), f"the offset of {number}"
            elif fate is Fate.ABORTED:
                assert number not in found, f"{number} was aborted, and its offset committed"
            elif self.written[number] and number in self.with_offsets:
                is_read = self.written[number][0] in read
                assert (number in found) is is_read, f"{number} is in parts"
