"""From what a member has to what it should have, one step at a time.

Rule 5 of section 6.9 of the facts. A member first lets go of what it must, and says so; only then
does it reach the epoch of the target, and gets what others have let go of. So a partition is never
with two members. Functions only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.coordinator.group.consumer.member import MemberState, Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.coordinator.group.assignors.problem import Assignment
    from millstream.coordinator.group.consumer.member import OwnedPartitions
    from millstream.types import Uuid


def reconciled(
    progress: Progress,
    target: Assignment,
    target_epoch: int,
    is_free: Callable[[Uuid, int], bool],
    owned: Assignment | None,
) -> Progress:
    """The next step of a member; the same value if it has none to take.

    `owned` is what the member says it has; None if it does not say. `is_free` tells whether nobody
    has a partition.
    """
    if progress.state is MemberState.STABLE and progress.epoch == target_epoch:
        return progress
    if progress.state is MemberState.UNREVOKED_PARTITIONS and _has_any(
        owned, progress.pending_revocation
    ):
        return progress
    step = _step(progress, target, target_epoch, is_free, owned)
    if step.epoch != progress.epoch:
        return step._replace(previous_epoch=progress.epoch)
    return step


def _step(
    progress: Progress,
    target: Assignment,
    target_epoch: int,
    is_free: Callable[[Uuid, int], bool],
    owned: Assignment | None,
) -> Progress:
    kept = _within(progress.assigned, target)
    to_revoke = _without(progress.assigned, target)
    if to_revoke and _has_any(owned, to_revoke):
        return progress._replace(
            state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, pending_revocation=to_revoke
        )
    is_complete = True
    added: dict[Uuid, dict[int, int]] = {}
    for topic, partitions in target.items():
        for partition in partitions:
            if partition in kept.get(topic, {}):
                continue
            # What this member itself had and lets go of now is free for nobody else, but for it.
            if is_free(topic, partition) or _has(progress.pending_revocation, topic, partition):
                added.setdefault(topic, {})[partition] = target_epoch
            else:
                is_complete = False
    return progress._replace(
        epoch=target_epoch,
        state=MemberState.STABLE if is_complete else MemberState.UNRELEASED_PARTITIONS,
        assigned=_merged(kept, added),
        pending_revocation={},
    )


def _within(owned: OwnedPartitions, target: Assignment) -> dict[Uuid, dict[int, int]]:
    return _filtered(owned, lambda topic, partition: partition in target.get(topic, ()))


def _without(owned: OwnedPartitions, target: Assignment) -> dict[Uuid, dict[int, int]]:
    return _filtered(owned, lambda topic, partition: partition not in target.get(topic, ()))


def _filtered(
    owned: OwnedPartitions, admits: Callable[[Uuid, int], bool]
) -> dict[Uuid, dict[int, int]]:
    found = {
        topic: {each: epoch for each, epoch in partitions.items() if admits(topic, each)}
        for topic, partitions in owned.items()
    }
    return {topic: partitions for topic, partitions in found.items() if partitions}


def _merged(
    kept: Mapping[Uuid, Mapping[int, int]], added: Mapping[Uuid, Mapping[int, int]]
) -> dict[Uuid, dict[int, int]]:
    return {
        topic: {**kept.get(topic, {}), **added.get(topic, {})} for topic in sorted({*kept, *added})
    }


def _has(owned: OwnedPartitions, topic: Uuid, partition: int) -> bool:
    return partition in owned.get(topic, {})


def _has_any(owned: Assignment | None, partitions: OwnedPartitions) -> bool:
    """Whether a member still has some of the partitions; it does if it does not say."""
    if owned is None:
        return True
    return any(
        not owned.get(topic, frozenset()).isdisjoint(wanted) for topic, wanted in partitions.items()
    )
