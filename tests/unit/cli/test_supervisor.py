"""The supervisor of a cluster: what dies is started again, what never comes up is given up."""

from __future__ import annotations

import pytest

from millstream.cli.supervisor import (
    BACKOFF_MAX_MS,
    BACKOFF_MS,
    HURRIED_STOP_MS,
    LASTING_MS,
    SLOW_START_MS,
    STARTS_MAX,
    STOP_MS,
    Announce,
    Effect,
    End,
    Launch,
    NodeState,
    Supervisor,
    Tell,
    Urgency,
)


class Story:
    """A supervisor of three nodes, and the time."""

    def __init__(self, *node_ids: int) -> None:
        self.supervisor = Supervisor(node_ids or (1, 2, 3))
        self.now_ms = 0
        self.told: list[str] = []

    def _acts(self, effects: list[Effect]) -> list[Effect]:
        self.told += [each.text for each in effects if isinstance(each, Tell)]
        return [each for each in effects if not isinstance(each, Tell)]

    def start(self) -> list[Effect]:
        return self._acts(self.supervisor.start(self.now_ms))

    def run(self) -> None:
        """Start, and have all ready."""
        self.start()
        for each in self.supervisor.node_ids:
            self.ready(each)

    def ready(self, node_id: int) -> list[Effect]:
        return self._acts(self.supervisor.ready(node_id, self.now_ms))

    def ended(self, node_id: int, *last: str) -> list[Effect]:
        how = "ended with exit code 1"
        return self._acts(self.supervisor.ended(node_id, how, last, self.now_ms))

    def stop(self) -> list[Effect]:
        return self._acts(self.supervisor.stop_asked(self.now_ms, [], [[1, 3], [2]]))

    def after(self, ms: int) -> list[Effect]:
        self.now_ms += ms
        return self._acts(self.supervisor.tick(self.now_ms))

    def delay_ms(self) -> int:
        """How long it takes until something happens."""
        began_ms = self.now_ms
        while not self.after(100):
            assert self.now_ms < began_ms + 10 * BACKOFF_MAX_MS
        return self.now_ms - began_ms

    def states(self) -> list[str]:
        return [str(self.supervisor.state(each)) for each in self.supervisor.node_ids]


@pytest.fixture
def story() -> Story:
    return Story()


def test_all_nodes_start_together_and_are_announced_once(story: Story) -> None:
    assert story.start() == [Launch(1), Launch(2), Launch(3)]
    assert story.states() == ["starting"] * 3

    assert story.ready(1) == story.ready(3) == []
    assert story.ready(2) == [Announce()]
    assert story.states() == ["running"] * 3
    story.ended(2)
    story.delay_ms()
    assert story.ready(2) == []
    assert story.told[-1] == "node 2 is ready again"


def test_a_node_that_dies_is_started_again_later_each_time(story: Story) -> None:
    story.run()

    delays = []
    for _ in range(9):
        assert story.ended(2) == []
        assert story.states() == ["running", "restarting", "running"]
        delays.append(story.delay_ms())
        story.ready(2)

    assert delays[:4] == [BACKOFF_MS, 2 * BACKOFF_MS, 4 * BACKOFF_MS, 8 * BACKOFF_MS]
    assert delays[-1] == BACKOFF_MAX_MS
    assert story.supervisor.restarts(2) == 9
    assert "node 2 ended with exit code 1; it is started again in 0.5 s" in story.told


def test_a_node_that_ran_for_long_is_started_again_at_once(story: Story) -> None:
    story.run()
    for _ in range(4):
        story.ended(1)
        story.delay_ms()
        story.ready(1)

    story.after(LASTING_MS)
    story.ended(1)

    assert story.delay_ms() == BACKOFF_MS


def test_a_node_that_never_comes_up_is_given_up_with_its_last_words(story: Story) -> None:
    story.run()
    for _ in range(STARTS_MAX):
        story.ended(3, "first", "no space left")
        story.delay_ms()
    story.ended(3, "first", "no space left")

    assert story.states() == ["running", "running", "failed"]
    assert "5th time" in story.told[-1]
    assert story.told[-1].endswith("\n    first\n    no space left")
    assert story.supervisor.has_failed
    assert not story.supervisor.is_over
    assert story.after(BACKOFF_MAX_MS) == []


def test_a_cluster_that_never_was_ready_is_not_left_half_started(story: Story) -> None:
    story.start()
    story.ready(1)
    for _ in range(STARTS_MAX - 1):
        story.ended(3)
        story.delay_ms()

    assert story.ended(3) == [End(1, Urgency.UNASKED), End(2, Urgency.UNASKED)]
    assert story.told[-1].endswith("the last it said: nothing")
    assert story.ended(1) == story.ended(2) == []
    assert story.supervisor.is_over
    assert story.states() == ["stopped", "stopped", "failed"]


def test_the_end_of_all_is_the_end() -> None:
    story = Story(1)
    story.run()
    for _ in range(STARTS_MAX):
        story.ended(1)
        story.delay_ms()
    story.ended(1)

    assert story.supervisor.is_over


def test_a_start_that_takes_long_is_told_once(story: Story) -> None:
    story.start()
    story.ready(1)

    story.after(SLOW_START_MS)
    story.after(SLOW_START_MS)

    assert len(story.told) == 2
    assert story.told[0].startswith("node 2 is not ready after 30 s")


def test_nodes_stop_group_by_group(story: Story) -> None:
    story.run()

    assert story.stop() == [End(1, Urgency.UNASKED), End(3, Urgency.UNASKED)]
    assert story.states() == ["stopping", "running", "stopping"]
    assert story.ended(1) == []
    assert story.ended(3) == [End(2, Urgency.UNASKED)]
    assert not story.supervisor.is_over
    assert story.ended(2) == []
    assert story.supervisor.is_over
    assert not story.supervisor.has_failed


def test_brokers_of_their_own_take_leave_of_the_controllers(story: Story) -> None:
    story.run()

    stopped = story.supervisor.stop_asked(0, [3], [[1], [2]])

    assert stopped == [End(3, Urgency.IN_ORDER)]
    assert story.ended(3) == [End(1, Urgency.UNASKED)]


def test_who_waits_to_be_started_again_has_stopped(story: Story) -> None:
    story.run()
    story.ended(2)

    story.stop()
    story.ended(1)
    story.ended(3)

    assert story.supervisor.is_over
    assert story.states() == ["stopped"] * 3
    assert story.after(BACKOFF_MAX_MS) == []


def test_a_node_that_dies_before_its_turn_is_not_started_again(story: Story) -> None:
    story.run()
    story.stop()

    assert story.ended(2) == []
    story.ended(1)
    assert story.ended(3) == []
    assert story.supervisor.is_over


def test_a_second_and_a_third_signal_hurry(story: Story) -> None:
    story.run()
    story.stop()

    assert story.stop() == [End(each, Urgency.AT_ONCE) for each in (1, 2, 3)]
    story.ended(1)
    assert story.stop() == [End(each, Urgency.KILLED) for each in (2, 3)]
    assert story.stop() == []


def test_a_node_that_does_not_stop_is_ended_by_force(story: Story) -> None:
    story.run()
    story.stop()
    story.ended(1)

    assert story.after(STOP_MS) == [End(3, Urgency.AT_ONCE)]
    assert story.after(HURRIED_STOP_MS) == [End(3, Urgency.KILLED)]
    assert story.after(HURRIED_STOP_MS) == []
    assert story.ended(3) == [End(2, Urgency.UNASKED)]


def test_a_stop_while_starting_ends_those_that_start(story: Story) -> None:
    story.start()

    story.stop()
    assert story.ready(1) == []
    assert story.supervisor.state(1) is NodeState.STOPPING
