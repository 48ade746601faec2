"""What a leader knows of followers comes out the same whether it looks at all their partitions.

The rule is that each fetch of a follower says something about every partition of its session; the
sessions look only at those that have changed. Both get the same story here, step by step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest import mock

from hypothesis import example, given
from hypothesis import strategies as st

from millstream.replica.fetch_session import FetchSession
from tests.unit.replica.harness import LAG_MS, LOCAL, World, asked, error_codes, sizes
from tests.unit.storage.batches import batch_bytes

if TYPE_CHECKING:
    from typing import Any

    from millstream.replica.fetch_partition import FetchPartition
    from millstream.replica.fetch_session import FetchAnswer

PARTITIONS = 3
FOLLOWERS = (2, 3)

FETCH = st.tuples(st.just("fetch"), st.sampled_from(FOLLOWERS))
APPEND = st.tuples(st.just("append"), st.integers(0, PARTITIONS - 1))
PAUSE = st.tuples(
    st.just("stand still"), st.sampled_from((1, 100, LAG_MS // 2, LAG_MS, 2 * LAG_MS))
)
STEPS = st.lists(
    st.one_of(
        FETCH,
        FETCH,
        FETCH,
        APPEND,
        APPEND,
        PAUSE,
        PAUSE,
        st.tuples(st.just("agree"), st.just(0)),
        st.tuples(st.just("lead anew"), st.integers(0, PARTITIONS - 1)),
        st.tuples(st.just("fence"), st.sampled_from(FOLLOWERS)),
        st.tuples(st.just("unfence"), st.sampled_from(FOLLOWERS)),
    ),
    min_size=10,
    max_size=60,
)


class Follower:
    """One follower with a session, which fetches what it has not got, a batch at a time."""

    def __init__(self, world: World, broker_id: int) -> None:
        self._world = world
        self._broker_id = broker_id
        self._ends = [0] * PARTITIONS
        self._told: list[int | None] = [None] * PARTITIONS
        self._session = (0, 0)

    def fetch(self) -> FetchAnswer:
        """Fetch, and take what comes."""
        named = [
            asked(end, index=index, log_start_offset=0)
            for index, end in enumerate(self._ends)
            if self._told[index] != end
        ]
        self._told = list(self._ends)
        answer = self._world.fetch(
            *named,
            session=self._session,
            max_bytes=2 * len(batch_bytes()),
            replica_id=self._broker_id,
            replica_epoch=1,
        ).value
        self._session = (answer.session_id, self._session[1] + 1)
        for partition, found in answer.partitions:
            self._ends[partition.index] += found.size // len(batch_bytes())
        return answer


class Story:
    """A leader, its followers and what happens."""

    def __init__(self) -> None:
        self.world = World()
        for each in FOLLOWERS:
            self.world.register(each)
        self.world.create(partitions=PARTITIONS, replicas=(LOCAL, *FOLLOWERS))
        self._followers = {each: Follower(self.world, each) for each in FOLLOWERS}

    def step(self, what: str, which: int) -> object:
        """Let something happen; what a client saw of it."""
        world = self.world
        if what == "fetch":
            answer = self._followers[which].fetch()
            return sizes(answer), error_codes(answer)
        if what == "append":
            world.produce(index=which, acks=1)
        elif what == "stand still":
            world.pass_time(which)
        elif what == "agree" and world.controller.proposals:
            world.controller.agree()
        elif what == "lead anew":
            world.change(index=which, leader=LOCAL)
        elif what == "fence":
            world.fence(which)
        elif what == "unfence":
            world.unfence(which)
        world.settle()
        return None

    def seen(self) -> list[Any]:
        """Everything that the rules of replication go by."""
        return [
            (
                partition.log.high_watermark,
                sorted(partition.isr),
                sorted(partition.maximal_isr),
                [
                    (state.log_end_offset, state.last_caught_up_ms, state.last_fetch_ms)
                    for _, state in sorted(partition.followers.items())
                ],
            )
            for partition in (self.world.partition(index=each) for each in range(PARTITIONS))
        ]


def _all_of_a_follower(session: FetchSession) -> list[FetchPartition]:
    return sorted(session.partitions.values(), key=lambda each: each.rank)


def run_plain(steps: list[tuple[str, int]]) -> list[Any]:
    """The story by the plain rule."""
    with mock.patch.object(FetchSession, "candidates", _all_of_a_follower):
        return run(steps)


def run(steps: list[tuple[str, int]]) -> list[Any]:
    """The story; what was seen after each step."""
    story = Story()
    return [(story.step(*each), story.seen()) for each in steps]


@given(STEPS)
@example([("fetch", 2), ("append", 0), *[("fetch", each) for each in (2, 2, 3, 3, 3)]])
def test_followers_are_judged_as_if_every_partition_were_looked_at(
    steps: list[tuple[str, int]],
) -> None:
    assert run(steps) == run_plain(steps)
