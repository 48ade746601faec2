"""The high watermark, whatever leader, followers, controller and clock do.

It never goes back, never passes a replica that counts, and nothing is acknowledged above it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from millstream.errors import IneligibleReplica, NetworkException, NotEnoughReplicas
from millstream.storage.log.config import LogConfig
from tests.unit.replica.harness import LAG_MS, LOCAL, Reply, World
from tests.unit.storage.batches import batch_bytes

if TYPE_CHECKING:
    from millstream.replica.append_service import AppendResult

FOLLOWERS = st.sampled_from([2, 3])


class HighWatermarkMachine(RuleBasedStateMachine):
    """One leader with two followers, whose logs are numbers."""

    @initialize(
        isr=st.sampled_from([(1,), (1, 2), (1, 2, 3)]),
        min_isr=st.sampled_from([1, 1, 2, 3]),
        durability=st.sampled_from(["page-cache", "disk"]),
    )
    def begin(self, isr: tuple[int, ...], min_isr: int, durability: str) -> None:
        """A leader, and followers that are empty."""
        self.world = World()
        for follower in (2, 3):
            self.world.register(follower)
        self.world.create(
            replicas=(LOCAL, 2, 3),
            isr=isr,
            config=LogConfig(min_insync_replicas=min_isr, durability=durability),
        )
        self.ends = {2: 0, 3: 0}
        self.fenced: set[int] = set()
        self.high_watermark = 0
        self.replies: list[tuple[int, Reply[list[AppendResult]]]] = []

    @rule(records=st.integers(1, 3), acks=st.sampled_from([1, -1]))
    def produce(self, records: int, acks: int) -> None:
        """Somebody appends."""
        end = self.world.partition().log.log_end_offset
        reply = self.world.produce(batch_bytes(records=records), acks=acks, timeout_ms=10 * LAG_MS)
        if not reply.is_pending and reply.value[0].error is not None:
            assert isinstance(reply.value[0].error, NotEnoughReplicas)
            assert self.world.partition().log.log_end_offset == end
        elif acks == -1:
            self.replies.append((end + records, reply))

    @rule(follower=FOLLOWERS, share=st.integers(0, 3))
    def fetch(self, follower: int, share: int) -> None:
        """A follower fetches, and gets some of what it lacks."""
        self.world.follow(self.ends[follower], broker=follower)
        end = self.world.partition().log.log_end_offset
        missing = end - self.ends[follower]
        self.ends[follower] = min(end, self.ends[follower] + missing * share // 3)

    @rule(ms=st.sampled_from([1, LAG_MS // 2, LAG_MS + 1]))
    def pass_time(self, ms: int) -> None:
        """Followers may lag."""
        self.world.pass_time(ms)

    @rule()
    def settle(self) -> None:
        """The disk and those who wait get their turn."""
        self.world.settle()

    @precondition(lambda self: bool(self.world.controller.proposals))
    @rule(answer=st.sampled_from(["yes", "no", "again"]))
    def answer(self, answer: str) -> None:
        """The controller decides."""
        controller = self.world.controller
        proposal = controller.proposals[0][0]
        if answer == "yes" and proposal.partition_epoch == self.epoch:
            controller.agree()
        else:
            controller.refuse(NetworkException() if answer == "again" else IneligibleReplica())

    @property
    def epoch(self) -> int:
        """The partition epoch."""
        return self.world.partition().partition_epoch

    @rule(follower=FOLLOWERS)
    def fence(self, follower: int) -> None:
        """A broker goes, or comes back."""
        if follower in self.fenced:
            self.world.unfence(follower)
        else:
            self.world.fence(follower)
        self.fenced ^= {follower}

    @rule()
    def lead_again(self) -> None:
        """A new epoch of the same leader, with the same ISR; proposals die."""
        registration = self.world.cache.partition("t", 0)
        assert registration is not None
        isr = sorted(self.world.partition().isr)
        while registration.partition_epoch < self.epoch:
            self.world.change(isr=isr)
            registration = self.world.cache.partition("t", 0)
            assert registration is not None
        self.world.change(leader=LOCAL, isr=isr)

    @invariant()
    def it_never_goes_back_and_stays_within_the_log(self) -> None:
        """Rule 4."""
        log = self.world.partition().log
        assert self.high_watermark <= log.high_watermark <= log.log_end_offset

    @invariant()
    def it_never_passes_a_replica_that_counts(self) -> None:
        """Rule 4: when it moves, every member of the maximal ISR has the records."""
        partition = self.world.partition()
        log = partition.log
        if log.high_watermark > self.high_watermark:
            assert len(partition.isr) >= min(log.config.min_insync_replicas, 3)
            for member in partition.maximal_isr - {LOCAL}:
                assert partition.followers[member].log_end_offset >= log.high_watermark
                assert self.ends[member] >= log.high_watermark
            if log.config.waits_for_disk:
                assert log.high_watermark <= log.recovery_point
        self.high_watermark = log.high_watermark

    @invariant()
    def what_is_acknowledged_is_committed(self) -> None:
        """Produce, rule 4."""
        for end, reply in self.replies:
            if not reply.is_pending and reply.value[0].error is None:
                assert end <= self.high_watermark

    @invariant()
    def one_proposal_is_under_way_and_is_part_of_the_maximal_isr(self) -> None:
        """Rule 3."""
        partition = self.world.partition()
        assert partition.isr <= partition.maximal_isr
        if partition.proposal is None:
            assert partition.isr == partition.maximal_isr


HighWatermarkMachine.TestCase.settings = settings(stateful_step_count=40)
TestHighWatermark = HighWatermarkMachine.TestCase
