"""What the controller and the metadata say to a leader (facts 6.6, rule 9, the leader's part)."""

from __future__ import annotations

import pytest

from millstream.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidUpdateVersion,
    NetworkException,
    OperationNotAttempted,
)
from millstream.storage.log.config import LogConfig
from millstream.storage.log.epoch_cache import EpochEntry
from tests.unit.replica.harness import (
    LOCAL,
    World,
    asked,
    sizes,
)


def leading(*followers: int, isr: tuple[int, ...] | None = None) -> World:
    """A broker that leads t-0; its followers are registered."""
    world = World()
    for follower in followers:
        world.register(follower)
    world.create(replicas=(LOCAL, *followers), isr=isr)
    return world


def proposing() -> World:
    """A leader whose proposal to add broker 2 is under way."""
    world = leading(2, isr=(LOCAL,))
    world.follow(0)
    return world


def test_an_agreed_proposal_is_the_isr() -> None:
    world = proposing()

    world.controller.agree()

    partition = world.partition()
    assert partition.isr == partition.maximal_isr == {LOCAL, 2}
    assert (partition.partition_epoch, partition.proposal) == (1, None)


@pytest.mark.parametrize("error", [IneligibleReplica(), OperationNotAttempted()])
def test_a_refused_proposal_is_taken_back(error: IneligibleReplica) -> None:
    world = proposing()

    world.controller.refuse(error)

    partition = world.partition()
    assert partition.isr == partition.maximal_isr == {LOCAL}
    assert partition.proposal is None


@pytest.mark.parametrize("error", [FencedLeaderEpoch(), InvalidUpdateVersion()])
def test_a_proposal_of_an_old_view_waits_for_the_metadata(error: FencedLeaderEpoch) -> None:
    world = proposing()

    world.controller.refuse(error)
    assert world.partition().maximal_isr == {LOCAL, 2}
    assert world.controller.proposals == []
    world.change(isr=[LOCAL, 2])

    assert world.partition().isr == {LOCAL, 2}
    assert world.partition().proposal is None


def test_other_errors_make_the_leader_ask_again() -> None:
    world = proposing()

    first = world.controller.refuse(NetworkException())

    assert world.controller.agree() is first
    assert world.partition().isr == {LOCAL, 2}


def test_an_answer_that_the_metadata_has_overtaken_is_ignored() -> None:
    world = proposing()
    world.change(isr=[LOCAL], leader=LOCAL)
    world.change(isr=[LOCAL])

    world.controller.agree()

    assert world.partition().isr == {LOCAL}
    assert world.partition().partition_epoch == 2


# Metadata that is not new.


def test_metadata_that_is_older_changes_nothing() -> None:
    world = leading(2)
    registration = world.cache.partition("t", 0)
    assert registration is not None
    world.change(isr=[LOCAL, 2], leader=LOCAL)

    assert world.partition().become_leader(registration, 0) is False
    assert world.partition().become_follower(registration) is False
    assert world.partition().is_leader


def test_metadata_of_the_same_epoch_is_taken_again() -> None:
    world = leading(2)
    registration = world.cache.partition("t", 0)
    assert registration is not None
    partition = world.partition()
    partition.resign()

    assert partition.become_leader(registration, 0) is True
    assert partition.is_leader
    assert partition.leader_epoch == registration.leader_epoch


def test_epochs_without_a_record_between_them_collapse_in_the_log() -> None:
    world = leading(2)

    world.change(leader=LOCAL)
    world.change(leader=LOCAL)

    log = world.store.get(world.partition().name)
    assert log is not None
    assert log.epochs.latest == EpochEntry(2, 0)


def test_min_isr_of_a_changed_setting_counts_from_now_on() -> None:
    world = leading(2, isr=(LOCAL,))
    world.fence(2)
    world.configure("t", LogConfig(min_insync_replicas=2))
    world.produce(acks=1)
    assert sizes(world.fetch(asked(0)).value) == [0]

    world.configure("t", LogConfig())

    assert sizes(world.fetch(asked(0)).value) != [0]
