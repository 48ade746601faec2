"""`ShareGroupCoordinator`: what members of share groups ask their coordinator.

The handlers in `server` call it, and `GroupCoordinator` before it deletes a group. It goes between
the shard, which decides, and the share coordinator, which keeps the state of share partitions.
The administration of offsets is in `offsets`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.coordinator.gathering import gather
from millstream.coordinator.group.share import assignor
from millstream.coordinator.group.share.manager import JOIN_EPOCH, LEAVE_EPOCH
from millstream.coordinator.share.state import UNINITIALIZED_OFFSET
from millstream.errors import ApiError, InvalidGroupId, InvalidRequest
from millstream.protocol.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from millstream.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    from millstream.coordinator.decision import Caller
    from millstream.coordinator.group.ports import TopicsView
    from millstream.coordinator.group.shard import GroupShard
    from millstream.coordinator.group.share.group import ShareMember
    from millstream.coordinator.group.share.manager import Heartbeat
    from millstream.coordinator.group.share.records import TopicShare
    from millstream.coordinator.group.share.states import ToInitialize
    from millstream.coordinator.runtime import CoordinatorRuntime
    from millstream.coordinator.share.ports import ShareStateStore
    from millstream.coordinator.share.state import ShareKey
    from millstream.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatResponse
    from millstream.types import Uuid

    HeartbeatDone: TypeAlias = Callable[[ShareGroupHeartbeatResponse | ApiError], None]


class ShareGroupCoordinator:
    """The share groups that this broker coordinates."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupShard],
        states: ShareStateStore,
        topics: TopicsView,
    ) -> None:
        self._runtime = runtime
        self._states = states
        self._topics = topics
        self._beginning: set[tuple[str, Uuid]] = set()
        """The topics whose state is being begun, by group."""

    # Members.

    def heartbeat(
        self, request: ShareGroupHeartbeatRequest, caller: Caller, done: HeartbeatDone
    ) -> None:
        """A member joins, goes on or leaves.

        Who joins waits until the topics it wants can be assigned: else it would hear of them with
        its next heartbeat only.
        """
        problem = _problem(request)
        if problem is not None:
            done(problem)
            return

        def answered(outcome: Heartbeat | ApiError) -> None:
            if isinstance(outcome, ApiError):
                done(outcome)
            elif not outcome.may_need_state:
                done(outcome.response)
            elif request.member_epoch == JOIN_EPOCH:
                again = ShareGroupHeartbeatRequest(
                    group_id=request.group_id,
                    member_id=request.member_id,
                    member_epoch=outcome.response.member_epoch,
                    rack_id=request.rack_id,
                    subscribed_topic_names=request.subscribed_topic_names,
                )
                self._begin_missing(
                    request.group_id,
                    lambda is_begun: (
                        self._heartbeat(again, caller, done) if is_begun else done(outcome.response)
                    ),
                )
            else:
                done(outcome.response)
                self._begin_missing(request.group_id, lambda _: None)

        self._runtime.write(
            request.group_id,
            lambda shard, now: shard.shares.heartbeat(request, caller, now),
            answered,
        )

    def _heartbeat(
        self, request: ShareGroupHeartbeatRequest, caller: Caller, done: HeartbeatDone
    ) -> None:
        self._runtime.write(
            request.group_id,
            lambda shard, now: shard.shares.heartbeat(request, caller, now),
            lambda outcome: done(outcome if isinstance(outcome, ApiError) else outcome.response),
        )

    # State.

    def _begin_missing(self, group_id: str, done: Callable[[bool], None]) -> None:
        """Begin the share partitions that members want; `done` hears whether any has begun."""

        def found(missing: Mapping[Uuid, TopicShare] | ApiError) -> None:
            if isinstance(missing, ApiError):
                done(False)
                return
            wanted = {
                topic_id: share
                for topic_id, share in missing.items()
                if (group_id, topic_id) not in self._beginning
            }
            if wanted:
                self._begin(group_id, wanted, done)
            else:
                done(False)

        self._runtime.read(group_id, lambda shard, _: shard.share_states.missing(group_id), found)

    def _begin(
        self, group_id: str, wanted: Mapping[Uuid, TopicShare], done: Callable[[bool], None]
    ) -> None:
        marks = {(group_id, topic_id) for topic_id in wanted}
        self._beginning |= marks

        def finished(is_begun: bool) -> None:  # It is a callback.
            self._beginning -= marks
            done(is_begun)

        def noted(begun: ToInitialize | ApiError) -> None:
            if isinstance(begun, ApiError):
                finished(False)
            else:
                offsets = dict.fromkeys(begun.keys(group_id), UNINITIALIZED_OFFSET)
                self.initialize(
                    group_id, begun, offsets, lambda errors: finished(not all(errors.values()))
                )

        self._runtime.write(
            group_id, lambda shard, _: shard.share_states.begin(group_id, wanted), noted
        )

    def initialize(
        self,
        group_id: str,
        begun: ToInitialize,
        offsets: Mapping[ShareKey, int],
        done: Callable[[Mapping[ShareKey, ApiError | None]], None],
    ) -> None:
        """Begin share partitions that are noted, at these offsets; the error of each."""
        keys = list(offsets)

        def ask(key: ShareKey, answered: Callable[[ApiError | None], None]) -> None:
            self._states.initialize(key, begun.state_epoch, offsets[key], answered)

        def asked(errors: list[ApiError | None]) -> None:
            outcome = dict(zip(keys, errors, strict=True))
            successes = [key for key, error in outcome.items() if error is None]

            def noted(error: ApiError | None) -> None:
                done(outcome if error is None else dict.fromkeys(keys, error))

            self._runtime.write(
                group_id,
                lambda shard, _: shard.share_states.finish(group_id, successes, begun),
                noted,
            )

        gather(keys, ask, asked)

    def delete_state(
        self,
        group_id: str,
        topics: Sequence[Uuid] | None,
        done: Callable[[Mapping[ShareKey, ApiError | None] | ApiError], None],
    ) -> None:
        """Delete the state of topics, or of all, and then the note of it."""

        def noted(keys: list[ShareKey] | ApiError) -> None:
            if isinstance(keys, ApiError):
                done(keys)
            else:
                gather(keys, self._states.delete, lambda errors: deleted(keys, errors))

        def deleted(keys: list[ShareKey], errors: list[ApiError | None]) -> None:
            outcome = dict(zip(keys, errors, strict=True))
            failed = {key.topic_id for key, error in outcome.items() if error is not None}
            gone = {key.topic_id for key in keys} - failed
            self._runtime.write(
                group_id,
                lambda shard, _: shard.share_states.finish_deletion(group_id, gone),
                lambda error: done(outcome if error is None else error),
            )

        self._runtime.write(
            group_id, lambda shard, _: shard.share_states.begin_deletion(group_id, topics), noted
        )

    def prepare_deletion(self, group_id: str, done: Callable[[ApiError | None], None]) -> None:
        """Delete all state of a group that is about to be deleted, if it is a share group."""

        def found(is_share: bool | ApiError) -> None:  # It is a callback.
            if isinstance(is_share, ApiError):
                done(is_share)
            elif not is_share:
                done(None)
            else:
                self.delete_state(group_id, None, deleted)

        def deleted(outcome: Mapping[ShareKey, ApiError | None] | ApiError) -> None:
            if isinstance(outcome, ApiError):
                done(outcome)
            else:
                done(next((each for each in outcome.values() if each is not None), None))

        def ask(shard: GroupShard) -> bool:
            group = shard.shares.find(group_id)
            if group is not None:
                group.validate_delete()
            return group is not None

        self._runtime.read(group_id, lambda shard, _: ask(shard), found)

    def topics_deleted(self, topics: Mapping[str, Uuid]) -> None:
        """Topics are gone: so is the state of them."""
        ids = list(topics.values())

        def asked(found: list[list[str]] | ApiError) -> None:
            for groups in [] if isinstance(found, ApiError) else found:
                for group_id in groups:
                    # What cannot be deleted now stays noted and goes with the group.
                    self.delete_state(group_id, ids, lambda _: None)

        self._runtime.read_all(lambda shard, _: shard.share_states.groups_with(ids), asked)

    # Describing.

    def describe(
        self, groups: Sequence[str], done: Callable[[ShareGroupDescribeResponse], None]
    ) -> None:
        """State, members and assignments; each group succeeds or fails for itself."""

        def ask(group_id: str, answered: Callable[[DescribedGroup | ApiError], None]) -> None:
            if not group_id:
                answered(InvalidGroupId("the group id is empty"))
                return
            self._runtime.read(
                group_id, lambda shard, _: self._described(shard, group_id), answered
            )

        def asked(found: list[DescribedGroup | ApiError]) -> None:
            done(
                ShareGroupDescribeResponse(
                    groups=[
                        failed_description(group_id, each) if isinstance(each, ApiError) else each
                        for group_id, each in zip(groups, found, strict=True)
                    ]
                )
            )

        gather(groups, ask, asked)

    def _described(self, shard: GroupShard, group_id: str) -> DescribedGroup:
        group = shard.shares.group(group_id)
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state_name,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=assignor.NAME,
            members=[self._described_member(each) for each in group.members.values()],
        )

    def _described_member(self, member: ShareMember) -> Member:
        asked = member.subscription
        return Member(
            member_id=member.member_id,
            rack_id=asked.rack,
            member_epoch=member.epoch,
            client_id=asked.client_id,
            client_host=asked.client_host,
            subscribed_topic_names=list(asked.topics),
            assignment=Assignment(
                topic_partitions=[
                    TopicPartitions(
                        topic_id=topic_id,
                        topic_name=self._topics.topic_name(topic_id) or "",
                        partitions=sorted(partitions),
                    )
                    for topic_id, partitions in sorted(member.assigned.items())
                ]
            ),
        )


def failed_description(group_id: str, error: ApiError) -> DescribedGroup:
    """A group that cannot be described."""
    return DescribedGroup(
        group_id=group_id,
        error_code=error.code,
        error_message=str(error),
    )


def _problem(request: ShareGroupHeartbeatRequest) -> ApiError | None:
    """What is wrong with a heartbeat whatever the group is like."""
    if not request.group_id.strip():
        return InvalidRequest("the group id is empty")
    if not request.member_id.strip():
        return InvalidRequest("the member id is empty")
    if request.member_epoch < LEAVE_EPOCH:
        return InvalidRequest(f"a member epoch cannot be {request.member_epoch}")
    if request.rack_id is not None and not request.rack_id.strip():
        return InvalidRequest("the rack id is empty")
    if request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names:
        return InvalidRequest("a member that joins must say which topics it wants")
    return None
