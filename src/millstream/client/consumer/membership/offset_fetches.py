"""Asking how far the group has read: committed offsets, with transactions undecided waited for.

`Membership` owns it. Each question is one call, tried again until its deadline; nothing is
remembered between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from millstream.client.consumer.membership.assignors.user_data import by_topic
from millstream.client.groups import OffsetAndMetadata
from millstream.client.router import Coordinator
from millstream.errors import (
    NO_ERROR,
    FencedMemberEpoch,
    MillstreamError,
    StaleMemberEpoch,
    UnknownMemberId,
    class_for_code,
    error_for_code,
)
from millstream.network.client.network_client import VersionedRequest
from millstream.protocol.api import ApiKey
from millstream.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from millstream.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.client.consumer.membership.group_view import GroupView
    from millstream.client.groups import ConsumerGroupMetadata
    from millstream.client.router import RequestRouter
    from millstream.protocol.message import Message

CommittedOffsets: TypeAlias = "dict[TopicPartition, OffsetAndMetadata | None]"
OnFetched: TypeAlias = "Callable[[CommittedOffsets | MillstreamError], None]"

_STABLE_SINCE: Final = 7
_GROUPS_SINCE: Final = 8
_IDS_SINCE: Final = 10
_MEMBER_CODES: Final = frozenset(
    {StaleMemberEpoch.code, UnknownMemberId.code, FencedMemberEpoch.code}
)
"""The member's epoch has gone on, or it joins anew: soon it has one that holds."""
MEMBER_WAIT_MS: Final = 100


class _Question(NamedTuple):
    partitions: frozenset[TopicPartition]
    deadline_ms: int
    on_done: OnFetched


class OffsetFetches:
    """The questions of one consumer."""

    def __init__(
        self,
        router: RequestRouter,
        view: GroupView,
        group_id: str,
        identity: Callable[[], ConsumerGroupMetadata],
    ) -> None:
        self._router = router
        self._view = view
        self._group_id = group_id
        self._identity = identity
        self._again: list[tuple[int, _Question]] = []

    def fetch(
        self,
        partitions: frozenset[TopicPartition],
        now_ms: int,
        on_done: OnFetched,
        deadline_ms: int,
    ) -> None:
        """Ask; a partition without a committed offset has None in the answer."""
        if not partitions:
            on_done({})
            return
        self._ask(_Question(partitions, deadline_ms, on_done), now_ms)

    def poll(self, now_ms: int) -> int | None:
        """Ask again what had to wait for the member's next epoch."""
        due = [question for when_ms, question in self._again if now_ms >= when_ms]
        self._again = [each for each in self._again if now_ms < each[0]]
        for question in due:
            self._ask(question, now_ms)
        return min((when_ms for when_ms, _ in self._again), default=None)

    def _ask(self, question: _Question, now_ms: int) -> None:
        topics = by_topic(question.partitions)
        ids = {name: self._view.id_of(name) for name in topics}
        has_ids = Uuid.ZERO not in ids.values()
        self._router.call(
            VersionedRequest(
                ApiKey.OFFSET_FETCH,
                lambda version: self._request(topics, ids, version),
                highest=None if has_ids else _IDS_SINCE - 1,
            ),
            Coordinator("group", self._group_id),
            lambda answer, then_ms: self._on_answer(question, answer, then_ms),
            deadline_ms=question.deadline_ms,
            now_ms=now_ms,
            error_of=_retriable_code,
        )

    def _request(self, topics: dict[str, list[int]], ids: dict[str, Uuid], version: int) -> Message:
        if version < _GROUPS_SINCE:
            return OffsetFetchRequest(
                group_id=self._group_id,
                topics=[
                    OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
                    for name, indexes in topics.items()
                ],
                require_stable=version >= _STABLE_SINCE,
            )
        identity = self._identity()
        group = OffsetFetchRequestGroup(
            group_id=self._group_id,
            member_id=identity.member_id or None,
            member_epoch=identity.generation_id,
            topics=[
                OffsetFetchRequestTopics(name=name, topic_id=ids[name], partition_indexes=indexes)
                for name, indexes in topics.items()
            ],
        )
        return OffsetFetchRequest(groups=[group], require_stable=True)

    def _on_answer(
        self, question: _Question, answer: Message | MillstreamError, now_ms: int
    ) -> None:
        if not isinstance(answer, OffsetFetchResponse):
            assert isinstance(answer, MillstreamError)
            question.on_done(answer)
            return
        code = _group_code(answer)
        if code in _MEMBER_CODES and now_ms + MEMBER_WAIT_MS < question.deadline_ms:
            self._again.append((now_ms + MEMBER_WAIT_MS, question))
        elif code != NO_ERROR:
            question.on_done(error_for_code(code))
        else:
            question.on_done(self._offsets(question, answer))

    def _offsets(
        self, question: _Question, answer: OffsetFetchResponse
    ) -> CommittedOffsets | MillstreamError:
        found: CommittedOffsets = dict.fromkeys(question.partitions)
        groups = answer.groups
        for topic in groups[0].topics if groups else answer.topics:
            name = topic.name or self._view.name_of(getattr(topic, "topic_id", Uuid.ZERO))
            if name is None:
                continue
            for each in topic.partitions:
                partition = TopicPartition(name, each.partition_index)
                if each.error_code != NO_ERROR:
                    said = class_for_code(each.error_code).sentence()
                    return error_for_code(each.error_code, f"{partition}: {said}")
                if each.committed_offset >= 0 and partition in found:
                    epoch = each.committed_leader_epoch
                    found[partition] = OffsetAndMetadata(
                        each.committed_offset, each.metadata or "", epoch if epoch >= 0 else None
                    )
        return found


def _group_code(answer: OffsetFetchResponse) -> int:
    return answer.groups[0].error_code if answer.groups else answer.error_code


def _retriable_code(response: Message) -> int:
    """A code that trying again may mend, of the group or of a partition."""
    assert isinstance(response, OffsetFetchResponse)
    codes = [_group_code(response)]
    for topic in response.groups[0].topics if response.groups else response.topics:
        codes += [each.error_code for each in topic.partitions]
    return next((code for code in codes if code and class_for_code(code).retriable), NO_ERROR)
