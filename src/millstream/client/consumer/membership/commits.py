"""Committing offsets: one request at a time, in order, until it is done or given up.

`Membership` owns it. While a request is under way, further commits gather and go with the next
one, the later offset of a partition winning; so what is committed never goes backwards, however
many are asked for. It never decides when to commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from millstream.client.router import Coordinator
from millstream.errors import (
    NO_ERROR,
    CommitFailed,
    FencedMemberEpoch,
    IllegalGeneration,
    MillstreamError,
    RebalanceInProgress,
    StaleMemberEpoch,
    TopicAuthorizationFailed,
    UnknownMemberId,
    class_for_code,
    error_for_code,
)
from millstream.network.client.network_client import VersionedRequest
from millstream.protocol.api import ApiKey
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from millstream.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from millstream.client.consumer.membership.group_view import GroupView
    from millstream.client.groups import ConsumerGroupMetadata, OffsetAndMetadata
    from millstream.client.router import RequestRouter
    from millstream.protocol.message import Message

OnCommitted: TypeAlias = Callable[[MillstreamError | None], None]
"""Told the first error among the partitions of a commit, or None."""

_PUT_OUT: Final = frozenset({UnknownMemberId.code, IllegalGeneration.code, FencedMemberEpoch.code})
_IDS_SINCE: Final = 10
_STATIC_SINCE: Final = 7


class _Commit(NamedTuple):
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    deadline_ms: int
    on_done: OnCommitted


class OffsetCommits:
    """The commits of one consumer."""

    def __init__(
        self,
        router: RequestRouter,
        view: GroupView,
        group_id: str,
        identity: Callable[[], ConsumerGroupMetadata],
        on_refused: Callable[[int, int], None],
    ) -> None:
        self._router = router
        self._view = view
        self._group_id = group_id
        self._identity = identity
        self._on_refused = on_refused
        self._waiting: list[_Commit] = []
        self._under_way: list[_Commit] = []
        self._retry_ms: int | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is waiting for an answer."""
        return not self._under_way and not self._waiting

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        now_ms: int,
        on_done: OnCommitted,
        deadline_ms: int,
    ) -> None:
        """Commit after everything that was asked for before."""
        if not offsets:
            on_done(None)
            return
        self._waiting.append(_Commit(dict(offsets), deadline_ms, on_done))
        self._send_next(now_ms)

    def poll(self, now_ms: int) -> int | None:
        """Try again what has to wait for the member's next epoch."""
        if self._retry_ms is not None and now_ms >= self._retry_ms:
            self._retry_ms = None
            self._send_next(now_ms)
        return self._retry_ms

    def _send_next(self, now_ms: int) -> None:
        if self._under_way or not self._waiting or self._retry_ms is not None:
            return
        self._under_way, self._waiting = self._waiting, []
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        for each in self._under_way:
            offsets.update(each.offsets)
        topics = _grouped(offsets, self._view)
        has_ids = all(each.topic_id != Uuid.ZERO for each in topics)
        self._router.call(
            VersionedRequest(
                ApiKey.OFFSET_COMMIT,
                lambda version: self._request(topics, version),
                highest=None if has_ids else _IDS_SINCE - 1,
            ),
            Coordinator("group", self._group_id),
            self._on_answer,
            deadline_ms=max(each.deadline_ms for each in self._under_way),
            now_ms=now_ms,
            error_of=_retriable_code,
        )

    def _request(self, topics: list[OffsetCommitRequestTopic], version: int) -> Message:
        # Asked for with each try: the epoch may have gone on meanwhile.
        identity = self._identity()
        return OffsetCommitRequest(
            group_id=self._group_id,
            generation_id_or_member_epoch=identity.generation_id,
            member_id=identity.member_id,
            group_instance_id=identity.group_instance_id if version >= _STATIC_SINCE else None,
            topics=topics,
        )

    def _on_answer(self, answer: Message | MillstreamError, now_ms: int) -> None:
        commits, self._under_way = self._under_way, []
        if not isinstance(answer, OffsetCommitResponse):
            assert isinstance(answer, MillstreamError)
            self._finish(commits, {}, answer)
        else:
            codes = _codes(answer, self._view)
            if StaleMemberEpoch.code in codes.values() and self._identity().member_id:
                commits = self._keep_for_next_epoch(commits, now_ms)
            self._learn(codes, now_ms)
            self._finish(commits, codes, None)
        self._send_next(now_ms)

    def _keep_for_next_epoch(self, commits: list[_Commit], now_ms: int) -> list[_Commit]:
        """The member's epoch has gone on: the same commit holds with the new one, in a moment."""
        over = [each for each in commits if now_ms >= each.deadline_ms]
        self._waiting = [each for each in commits if now_ms < each.deadline_ms] + self._waiting
        if self._waiting:
            self._retry_ms = now_ms + STALE_EPOCH_WAIT_MS
        return over

    def _learn(self, codes: Mapping[TopicPartition, int], now_ms: int) -> None:
        for code in sorted(set(codes.values())):
            if code != NO_ERROR and not class_for_code(code).retriable:
                self._on_refused(code, now_ms)

    def _finish(
        self,
        commits: list[_Commit],
        codes: Mapping[TopicPartition, int],
        error: MillstreamError | None,
    ) -> None:
        for each in commits:
            bad = next((tp for tp in sorted(each.offsets) if codes.get(tp, NO_ERROR)), None)
            each.on_done(error if bad is None else commit_error(codes[bad], bad, self._group_id))


STALE_EPOCH_WAIT_MS: Final = 100
"""How long a commit waits to hear of the member's new epoch."""


def commit_error(code: int, partition: TopicPartition, group_id: str) -> MillstreamError:
    """What a refused commit raises, with what to do about it."""
    if code in _PUT_OUT:
        return CommitFailed(
            f"group {group_id!r} has gone on without this member, and {partition} may be read by "
            "another one by now: its records are delivered again from the last commit. Poll more "
            "often, take fewer records with each poll (max_poll_records), or raise "
            "max_poll_interval"
        )
    if code == RebalanceInProgress.code:
        return RebalanceInProgress(
            f"group {group_id!r} is rebalancing: call poll() to take part, then commit again what "
            "this member still has"
        )
    if code == TopicAuthorizationFailed.code:
        return TopicAuthorizationFailed(f"not allowed to read topic {partition.topic!r}")
    return error_for_code(code, f"{partition}: {class_for_code(code).sentence()}")


def _grouped(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], view: GroupView
) -> list[OffsetCommitRequestTopic]:
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for each in sorted(offsets):
        topic = topics.get(each.topic)
        if topic is None:
            topic_id = view.id_of(each.topic)
            topic = topics[each.topic] = OffsetCommitRequestTopic(
                name=each.topic, topic_id=topic_id
            )
        what = offsets[each]
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=each.partition,
                committed_offset=what.offset,
                committed_leader_epoch=-1 if what.leader_epoch is None else what.leader_epoch,
                committed_metadata=what.metadata,
            )
        )
    return list(topics.values())


def _codes(answer: OffsetCommitResponse, view: GroupView) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic in answer.topics:
        name = topic.name or view.name_of(topic.topic_id)
        for each in topic.partitions:
            if name is not None:
                found[TopicPartition(name, each.partition_index)] = each.error_code
    return found


def _retriable_code(response: Message) -> int:
    """A code that trying again may mend, if a partition has one: then the whole is tried again."""
    assert isinstance(response, OffsetCommitResponse)
    codes = [each.error_code for topic in response.topics for each in topic.partitions]
    return next((code for code in codes if code and class_for_code(code).retriable), NO_ERROR)
