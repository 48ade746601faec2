"""Offsets of groups: how far consumers have read, where share groups begin; read, set, delete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.client.admin.operations import Operations, error_or, raise_for
from millstream.client.groups import OffsetAndMetadata
from millstream.client.router import Coordinator
from millstream.errors import MillstreamError, error_for_code
from millstream.network.client.network_client import VersionedRequest
from millstream.protocol.api import ApiKey
from millstream.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from millstream.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from millstream.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from millstream.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from millstream.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.client.admin.outcomes import Outcomes
    from millstream.client.router import Target
    from millstream.protocol.messages.describe_share_group_offsets import (
        DescribeShareGroupOffsetsResponseGroup,
    )

_SEVERAL_GROUPS_FROM: Final = 8
_TOPIC_NAMES_UNTIL: Final = 9
"""Later versions name topics by id only, which whoever administers need not know."""


@dataclass(frozen=True, slots=True)
class ShareOffset:
    """Where a share group begins in a partition."""

    start_offset: int | None
    """The first record that may still be delivered; None before anybody has read."""
    leader_epoch: int | None
    lag: int | None
    """How many records are not done with; None if the broker does not tell."""


class GroupOffsetOperations(Operations):
    """Operations on the offsets of groups."""

    async def list_group_offsets(
        self,
        groups: Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
        *,
        require_stable: bool = False,
        timeout: float | None = None,
    ) -> Outcomes[str, Mapping[TopicPartition, OffsetAndMetadata]]:
        """How far groups have read; of all partitions, or of those given for a group.

        Partitions without an offset are left out. `require_stable` waits for transactions that
        are about to commit offsets.
        """
        wanted = _wanted(groups)

        def request(names: Sequence[str]) -> VersionedRequest:
            def build(version: int) -> OffsetFetchRequest:
                if version < _SEVERAL_GROUPS_FROM:
                    return self._offset_fetch_of_one(names[0], wanted[names[0]], require_stable)
                return OffsetFetchRequest(
                    groups=[self._offset_fetch_group(each, wanted[each]) for each in names],
                    require_stable=require_stable,
                )

            return VersionedRequest(ApiKey.OFFSET_FETCH, build, _TOPIC_NAMES_UNTIL)

        def read(
            answer: OffsetFetchResponse, names: Sequence[str]
        ) -> dict[str, Mapping[TopicPartition, OffsetAndMetadata] | MillstreamError]:
            return self._read_offsets(answer, names)

        return await self._each(
            wanted,
            self._coordinator_of,
            request,
            read,
            timeout,
            batched_from=(ApiKey.OFFSET_FETCH, _SEVERAL_GROUPS_FROM),
        )

    async def alter_group_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        timeout: float | None = None,
    ) -> Outcomes[TopicPartition, None]:
        """Set how far a group has read; it must have no members."""

        def request(items: Sequence[TopicPartition]) -> VersionedRequest:
            topics = [
                OffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        _commit(index, offsets[self._partition(name, index)]) for index in indexes
                    ],
                )
                for name, indexes in self._by_wire_topic(items).items()
            ]
            made = OffsetCommitRequest(group_id=self._names.to_wire(group), topics=topics)
            return VersionedRequest(ApiKey.OFFSET_COMMIT, lambda _: made, _TOPIC_NAMES_UNTIL)

        def read(
            answer: OffsetCommitResponse, _items: Sequence[TopicPartition]
        ) -> dict[TopicPartition, MillstreamError | None]:
            return {
                self._partition(topic.name, each.partition_index): error_or(None, each.error_code)
                for topic in answer.topics
                for each in topic.partitions
            }

        return await self._each(
            offsets, lambda _: self._coordinator_of(group), request, read, timeout
        )

    async def delete_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> Outcomes[TopicPartition, None]:
        """Forget how far a group has read; nobody may be subscribed to the topics."""

        def request(items: Sequence[TopicPartition]) -> OffsetDeleteRequest:
            return OffsetDeleteRequest(
                group_id=self._names.to_wire(group),
                topics=[
                    OffsetDeleteRequestTopic(
                        name=name,
                        partitions=[
                            OffsetDeleteRequestPartition(partition_index=index) for index in indexes
                        ],
                    )
                    for name, indexes in self._by_wire_topic(items).items()
                ],
            )

        def read(
            answer: OffsetDeleteResponse, _items: Sequence[TopicPartition]
        ) -> dict[TopicPartition, MillstreamError | None]:
            raise_for(answer)
            return {
                self._partition(topic.name, each.partition_index): error_or(None, each.error_code)
                for topic in answer.topics
                for each in topic.partitions
            }

        return await self._each(
            partitions, lambda _: self._coordinator_of(group), request, read, timeout
        )

    async def list_share_group_offsets(
        self, groups: Iterable[str], *, timeout: float | None = None
    ) -> Outcomes[str, Mapping[TopicPartition, ShareOffset]]:
        """Where share groups begin in the partitions they read."""

        def request(names: Sequence[str]) -> DescribeShareGroupOffsetsRequest:
            return DescribeShareGroupOffsetsRequest(
                groups=[
                    DescribeShareGroupOffsetsRequestGroup(
                        group_id=self._names.to_wire(each), topics=None
                    )
                    for each in names
                ]
            )

        def read(
            answer: DescribeShareGroupOffsetsResponse, _names: Sequence[str]
        ) -> dict[str, Mapping[TopicPartition, ShareOffset] | MillstreamError]:
            return {
                name: self._share_offsets(each)
                for each in answer.groups
                if (name := self._names.from_wire(each.group_id)) is not None
            }

        return await self._each(groups, self._coordinator_of, request, read, timeout)

    async def alter_share_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> Outcomes[TopicPartition, None]:
        """Set where a share group begins; it must have no members."""

        def request(items: Sequence[TopicPartition]) -> AlterShareGroupOffsetsRequest:
            return AlterShareGroupOffsetsRequest(
                group_id=self._names.to_wire(group),
                topics=[
                    AlterShareGroupOffsetsRequestTopic(
                        topic_name=name,
                        partitions=[
                            AlterShareGroupOffsetsRequestPartition(
                                partition_index=index,
                                start_offset=offsets[self._partition(name, index)],
                            )
                            for index in indexes
                        ],
                    )
                    for name, indexes in self._by_wire_topic(items).items()
                ],
            )

        def read(
            answer: AlterShareGroupOffsetsResponse, _items: Sequence[TopicPartition]
        ) -> dict[TopicPartition, MillstreamError | None]:
            raise_for(answer)
            return {
                self._partition(topic.topic_name, each.partition_index): error_or(
                    None, each.error_code, each.error_message
                )
                for topic in answer.responses
                for each in topic.partitions
            }

        return await self._each(
            offsets, lambda _: self._coordinator_of(group), request, read, timeout
        )

    async def delete_share_group_offsets(
        self, group: str, topics: Iterable[str], *, timeout: float | None = None
    ) -> Outcomes[str, None]:
        """Forget where a share group begins in topics; nobody may be subscribed to them."""

        def request(names: Sequence[str]) -> DeleteShareGroupOffsetsRequest:
            return DeleteShareGroupOffsetsRequest(
                group_id=self._names.to_wire(group),
                topics=[
                    DeleteShareGroupOffsetsRequestTopic(topic_name=self._names.to_wire(each))
                    for each in names
                ],
            )

        def read(
            answer: DeleteShareGroupOffsetsResponse, _names: Sequence[str]
        ) -> dict[str, MillstreamError | None]:
            raise_for(answer)
            return {
                name: error_or(None, each.error_code, each.error_message)
                for each in answer.responses
                if (name := self._names.from_wire(each.topic_name)) is not None
            }

        return await self._each(
            topics, lambda _: self._coordinator_of(group), request, read, timeout
        )

    def _coordinator_of(self, group: str) -> Target:
        return Coordinator("group", self._names.to_wire(group))

    def _offset_fetch_group(
        self, group: str, partitions: list[TopicPartition] | None
    ) -> OffsetFetchRequestGroup:
        topics = None
        if partitions is not None:
            topics = [
                OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
                for name, indexes in self._by_wire_topic(partitions).items()
            ]
        return OffsetFetchRequestGroup(group_id=self._names.to_wire(group), topics=topics)

    def _offset_fetch_of_one(
        self, group: str, partitions: list[TopicPartition] | None, require_stable: bool
    ) -> OffsetFetchRequest:
        topics = None
        if partitions is not None:
            topics = [
                OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
                for name, indexes in self._by_wire_topic(partitions).items()
            ]
        return OffsetFetchRequest(
            group_id=self._names.to_wire(group), topics=topics, require_stable=require_stable
        )

    def _read_offsets(
        self, answer: OffsetFetchResponse, names: Sequence[str]
    ) -> dict[str, Mapping[TopicPartition, OffsetAndMetadata] | MillstreamError]:
        if not answer.groups:
            raise_for(answer)
            listed = [(topic.name, each) for topic in answer.topics for each in topic.partitions]
            return {names[0]: self._offsets(listed)}
        found: dict[str, Mapping[TopicPartition, OffsetAndMetadata] | MillstreamError] = {}
        for group in answer.groups:
            name = self._names.from_wire(group.group_id)
            if name is not None:
                told = [(topic.name, each) for topic in group.topics for each in topic.partitions]
                found[name] = (
                    error_for_code(group.error_code) if group.error_code else self._offsets(told)
                )
        return found

    def _offsets(
        self,
        told: Sequence[tuple[str, OffsetFetchResponsePartition | OffsetFetchResponsePartitions]],
    ) -> Mapping[TopicPartition, OffsetAndMetadata] | MillstreamError:
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for topic, each in told:
            if each.error_code:
                return error_for_code(each.error_code)
            name = self._names.from_wire(topic)
            if name is not None and each.committed_offset >= 0:
                epoch = each.committed_leader_epoch
                found[TopicPartition(name, each.partition_index)] = OffsetAndMetadata(
                    each.committed_offset, each.metadata or "", epoch if epoch >= 0 else None
                )
        return found

    def _share_offsets(
        self, told: DescribeShareGroupOffsetsResponseGroup
    ) -> Mapping[TopicPartition, ShareOffset] | MillstreamError:
        if told.error_code:
            return error_for_code(told.error_code, told.error_message)
        found: dict[TopicPartition, ShareOffset] = {}
        for topic in told.topics:
            name = self._names.from_wire(topic.topic_name)
            for each in topic.partitions:
                if each.error_code:
                    return error_for_code(each.error_code, each.error_message)
                if name is not None:
                    found[TopicPartition(name, each.partition_index)] = ShareOffset(
                        each.start_offset if each.start_offset >= 0 else None,
                        each.leader_epoch if each.leader_epoch >= 0 else None,
                        each.lag if each.lag >= 0 else None,
                    )
        return found


def _wanted(
    groups: Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
) -> dict[str, list[TopicPartition] | None]:
    if isinstance(groups, Mapping):
        return {
            group: None if partitions is None else list(partitions)
            for group, partitions in groups.items()
        }
    return dict.fromkeys(groups)


def _commit(partition: int, wanted: OffsetAndMetadata | int) -> OffsetCommitRequestPartition:
    value = OffsetAndMetadata(wanted) if isinstance(wanted, int) else wanted
    return OffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=value.offset,
        committed_leader_epoch=-1 if value.leader_epoch is None else value.leader_epoch,
        committed_metadata=value.metadata,
    )
