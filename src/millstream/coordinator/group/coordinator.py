"""`GroupCoordinator`: one method for each request about groups and offsets.

The handlers in `server` call it; it checks what needs no state, asks the runtime for the shard of
the group, and gives the answer to `done`: a response, or the error that is to be in it. Nothing
here waits: an answer may come before the call returns, or much later.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from millstream.coordinator.decision import ProducerStamp
from millstream.coordinator.gathering import gather_or_fail
from millstream.coordinator.group.offsets.commit import (
    commit_of,
    commit_of_transaction,
    commit_response,
    txn_commit_response,
)
from millstream.coordinator.group.replies import Reply
from millstream.errors import (
    ApiError,
    CoordinatorLoadInProgress,
    InvalidGroupId,
    InvalidSessionTimeout,
    NotCoordinator,
    RequestTimedOut,
)
from millstream.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from millstream.protocol.messages.consumer_group_describe import (
    DescribedGroup as DescribedConsumerGroup,
)
from millstream.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from millstream.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from millstream.protocol.messages.heartbeat import HeartbeatResponse
from millstream.protocol.messages.list_groups import ListGroupsResponse
from millstream.protocol.messages.offset_fetch import OffsetFetchResponseGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    from millstream.coordinator.decision import Caller, Decision, Moment
    from millstream.coordinator.group.config import GroupConfig
    from millstream.coordinator.group.offsets.commit import ErrorCodes
    from millstream.coordinator.group.ports import OffsetsTransactions
    from millstream.coordinator.group.shard import GroupShard
    from millstream.coordinator.runtime import CoordinatorRuntime
    from millstream.protocol.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    )
    from millstream.protocol.messages.heartbeat import HeartbeatRequest
    from millstream.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
    from millstream.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
    from millstream.protocol.messages.list_groups import ListedGroup, ListGroupsRequest
    from millstream.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
    from millstream.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
    from millstream.protocol.messages.offset_fetch import OffsetFetchRequestGroup
    from millstream.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
    from millstream.protocol.messages.txn_offset_commit import (
        TxnOffsetCommitRequest,
        TxnOffsetCommitResponse,
    )
    from millstream.types import Uuid

T = TypeVar("T")
if TYPE_CHECKING:
    Done: TypeAlias = Callable[[T | ApiError], None]
    BeforeDeletion: TypeAlias = Callable[[str, Callable[[ApiError | None], None]], None]

ADDS_TO_TRANSACTION_SINCE = 5
"""The version of TxnOffsetCommit whose clients do not send AddOffsetsToTxn."""


class GroupCounts(NamedTuple):
    """What there is on this broker: for metrics."""

    groups: Mapping[tuple[str, str], int]
    """How many groups there are, by type and state."""
    offsets: int


class GroupCoordinator:
    """The groups that this broker coordinates."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupShard],
        config: GroupConfig,
        transactions: OffsetsTransactions,
        before_deletion: BeforeDeletion = lambda _, done: done(None),
    ) -> None:
        """The runtime makes its shards of the same config.

        `before_deletion` deletes what others keep for a group, which is named, and says when.
        """
        self._runtime = runtime
        self._config = config
        self._transactions = transactions
        self._before_deletion = before_deletion

    # Membership.

    def join_group(
        self, request: JoinGroupRequest, caller: Caller, done: Done[JoinGroupResponse]
    ) -> None:
        """Enter a group or its next generation; the answer waits for the others."""
        low, high = (
            self._config.group_min_session_timeout_ms,
            self._config.group_max_session_timeout_ms,
        )
        if not request.group_id:
            done(InvalidGroupId("the group id is empty"))
        elif not low <= request.session_timeout_ms <= high:
            done(InvalidSessionTimeout(f"the session timeout must be from {low} to {high} ms"))
        else:
            reply = Reply(done)

            def decide(shard: GroupShard, now: Moment) -> Decision[JoinGroupResponse | None]:
                return shard.join_group(request, caller, reply.give, now)

            self._runtime.write(request.group_id, decide, reply.give_unless_parked)

    def sync_group(
        self, request: SyncGroupRequest, caller: Caller, done: Done[SyncGroupResponse]
    ) -> None:
        """Hand over or fetch the assignment; the answer waits for the leader's."""
        if not request.group_id:
            done(InvalidGroupId("the group id is empty"))
            return
        reply = Reply(done)

        def decide(shard: GroupShard, now: Moment) -> Decision[SyncGroupResponse | None]:
            return shard.sync_group(request, reply.give, now)

        self._runtime.write(request.group_id, decide, reply.give_unless_parked)

    def heartbeat(
        self, request: HeartbeatRequest, caller: Caller, done: Done[HeartbeatResponse]
    ) -> None:
        """A member is alive."""
        if not request.group_id:
            done(InvalidGroupId("the group id is empty"))
            return

        def answered(outcome: HeartbeatResponse | ApiError) -> None:
            # A member whose group is being loaded is to stay calm, not to join again.
            is_loading = isinstance(outcome, CoordinatorLoadInProgress)
            done(HeartbeatResponse() if is_loading else outcome)

        self._runtime.write(
            request.group_id, lambda shard, now: shard.heartbeat(request, now), answered
        )

    def leave_group(
        self, request: LeaveGroupRequest, caller: Caller, done: Done[LeaveGroupResponse]
    ) -> None:
        """Members go; in every version they are in `request.members`."""
        if not request.group_id:
            done(InvalidGroupId("the group id is empty"))
            return
        self._runtime.write(
            request.group_id, lambda shard, now: shard.leave_group(request, now), done
        )

    def consumer_group_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        done: Done[ConsumerGroupHeartbeatResponse],
    ) -> None:
        """A member of a consumer group joins, lives, follows its assignment, or leaves."""
        self._runtime.write(
            request.group_id,
            lambda shard, now: shard.consumer_group_heartbeat(request, caller, now),
            done,
        )

    # Groups.

    def consumer_group_describe(
        self,
        groups: Sequence[str],
        caller: Caller,
        done: Callable[[ConsumerGroupDescribeResponse], None],
    ) -> None:
        """Describe consumer groups; each succeeds or fails for itself."""

        def ask(group_id: str, answered: Done[DescribedConsumerGroup]) -> None:
            if not group_id:
                answered(InvalidGroupId("the group id is empty"))
                return
            self._runtime.read(
                group_id, lambda shard, _: shard.consumer.describe(group_id), answered
            )

        def fail(group_id: str, error: ApiError) -> DescribedConsumerGroup:
            return DescribedConsumerGroup(
                group_id=group_id, error_code=error.code, error_message=str(error)
            )

        gather_or_fail(
            groups, ask, fail, lambda found: done(ConsumerGroupDescribeResponse(groups=found))
        )

    def describe_groups(
        self, groups: Sequence[str], caller: Caller, done: Callable[[DescribeGroupsResponse], None]
    ) -> None:
        """Describe classic groups; each succeeds or fails for itself."""

        def ask(group_id: str, answered: Done[DescribedGroup]) -> None:
            self._runtime.read(
                group_id,
                lambda shard, _: shard.classic.describe(group_id, caller.version),
                answered,
            )

        def fail(group_id: str, error: ApiError) -> DescribedGroup:
            return DescribedGroup(group_id=group_id, error_code=error.code)

        gather_or_fail(groups, ask, fail, lambda found: done(DescribeGroupsResponse(groups=found)))

    def list_groups(
        self, request: ListGroupsRequest, caller: Caller, done: Done[ListGroupsResponse]
    ) -> None:
        """All groups of this broker, or those in some states and of some types."""
        states = {each.lower() for each in request.states_filter}
        types = {each.lower() for each in request.types_filter}

        def answered(found: list[list[ListedGroup]] | ApiError) -> None:
            if isinstance(found, ApiError):
                done(found)
            else:
                done(ListGroupsResponse(groups=[group for groups in found for group in groups]))

        self._runtime.read_all(lambda shard, _: shard.listed(states, types), answered)

    def delete_groups(
        self, groups: Sequence[str], caller: Caller, done: Callable[[DeleteGroupsResponse], None]
    ) -> None:
        """Delete empty groups with their offsets; each succeeds or fails for itself."""

        def ask(group_id: str, answered: Done[DeletableGroupResult]) -> None:
            def deleted(outcome: ApiError | None) -> None:
                answered(outcome or DeletableGroupResult(group_id=group_id))

            def prepared(error: ApiError | None) -> None:
                if error is not None:
                    answered(error)
                    return
                self._runtime.write(
                    group_id, lambda shard, _: shard.delete_group(group_id), deleted
                )

            self._before_deletion(group_id, prepared)

        def fail(group_id: str, error: ApiError) -> DeletableGroupResult:
            return DeletableGroupResult(group_id=group_id, error_code=error.code)

        unique = list(dict.fromkeys(groups))
        gather_or_fail(unique, ask, fail, lambda found: done(DeleteGroupsResponse(results=found)))

    # Offsets.

    def commit_offsets(
        self, request: OffsetCommitRequest, caller: Caller, done: Done[OffsetCommitResponse]
    ) -> None:
        """Store how far a group has read."""
        commit = commit_of(request, caller.version)

        def answered(outcome: ErrorCodes | ApiError) -> None:
            if not isinstance(outcome, ApiError):
                done(commit_response(commit, outcome))
            else:
                done(outcome)

        def decide(shard: GroupShard, now: Moment) -> Decision[ErrorCodes]:
            decision = shard.offsets.commit(commit, caller.version, now)
            shard.watch_expiry(now.now_ms)
            return decision

        self._runtime.gather(commit.group_id, decide, answered)

    def commit_txn_offsets(
        self, request: TxnOffsetCommitRequest, caller: Caller, done: Done[TxnOffsetCommitResponse]
    ) -> None:
        """Store how far a group will have read when a transaction commits."""
        if not request.group_id:
            done(InvalidGroupId("the group id is empty"))
            return
        stamp = ProducerStamp(request.producer_id, request.producer_epoch)
        commit = commit_of_transaction(request, caller.version)

        def decide(shard: GroupShard, now: Moment) -> Decision[ErrorCodes]:
            decision = shard.offsets.commit_in_transaction(commit, caller.version, now)
            shard.watch_expiry(now.now_ms)
            return decision

        def answered(outcome: ErrorCodes | ApiError) -> None:
            if not isinstance(outcome, ApiError):
                done(txn_commit_response(commit, outcome))
            else:
                done(outcome)

        def verified(error: ApiError | None) -> None:
            if error is not None:
                done(error)
            else:
                self._runtime.write(request.group_id, decide, answered, stamp=stamp)

        self._transactions.verify(
            request.transactional_id,
            stamp,
            request.group_id,
            verified,
            adds_partition=caller.version >= ADDS_TO_TRANSACTION_SINCE,
        )

    def fetch_offsets(
        self,
        groups: Sequence[OffsetFetchRequestGroup],
        caller: Caller,
        done: Callable[[list[OffsetFetchResponseGroup]], None],
        *,
        requires_stable: bool,
    ) -> None:
        """What groups have committed; each succeeds or fails for itself."""

        def ask(group: OffsetFetchRequestGroup, answered: Done[OffsetFetchResponseGroup]) -> None:
            self._runtime.read(
                group.group_id,
                lambda shard, _: shard.fetcher.fetch(
                    group, caller.version, requires_stable=requires_stable
                ),
                answered,
            )

        def fail(group: OffsetFetchRequestGroup, error: ApiError) -> OffsetFetchResponseGroup:
            # Consumers do not expect a timeout here and would not ask again.
            code = NotCoordinator.code if isinstance(error, RequestTimedOut) else error.code
            return OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)

        gather_or_fail(groups, ask, fail, done)

    def delete_offsets(
        self, request: OffsetDeleteRequest, caller: Caller, done: Done[OffsetDeleteResponse]
    ) -> None:
        """Delete offsets of topics that the group does not read."""
        if not request.group_id:
            done(InvalidGroupId("the group id is empty"))
            return
        self._runtime.write(request.group_id, lambda shard, _: shard.offsets.delete(request), done)

    # The rest of the world.

    def topics_deleted(self, topics: Mapping[str, Uuid]) -> None:
        """Topics, by name with their ids, are gone: so are the offsets in them."""
        self._runtime.write_all(lambda shard, _: shard.delete_topics(topics))

    def counts(self) -> GroupCounts:
        """How many groups and offsets there are."""
        groups: Counter[tuple[str, str]] = Counter()
        offsets = 0
        for shard in self._runtime.shards:
            offsets += shard.offsets.committed.count
            groups.update((group.type.value, group.state_name) for group in shard.groups.values())
        return GroupCounts(groups, offsets)
