"""Topics: create, delete, describe, list, add partitions.

Versions of Kafka that name topics only, and not by id, are served too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from millstream.client.admin.operations import Operations, error_or
from millstream.client.admin.outcomes import Outcomes
from millstream.client.router import ANY, CONTROLLER
from millstream.errors import (
    InvalidArgument,
    MillstreamError,
    UnsupportedVersion,
    error_for_code,
)
from millstream.network.client.network_client import VersionedRequest
from millstream.protocol.api import ApiKey
from millstream.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from millstream.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from millstream.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from millstream.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from millstream.types import Uuid

if TYPE_CHECKING:
    from millstream.protocol.messages.create_topics import CreatableTopicResult
    from millstream.protocol.messages.metadata import MetadataResponseTopic

ReplicaAssignment: TypeAlias = Mapping[int, Sequence[int]]
"""The brokers of each partition, by its index; the first is preferred as leader."""

_DEFAULTS_FROM: Final = 4
_DELETE_BY_STATE_FROM: Final = 6


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created; what is not given is the broker's default."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    config: Mapping[str, object] = field(default_factory=dict)
    """Topic settings by Kafka's names."""
    assignment: ReplicaAssignment | None = None
    """Instead of partitions and replication factor."""


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was created; what an old broker does not tell is None."""

    name: str
    topic_id: Uuid | None
    partitions: int | None
    replication_factor: int | None
    config: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition of a topic."""

    index: int
    leader: int | None
    """The broker that leads; None while nobody does."""
    leader_epoch: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic and its partitions, by ascending index."""

    name: str
    topic_id: Uuid | None
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


@dataclass(frozen=True, slots=True)
class TopicListing:
    """A topic in a list."""

    name: str
    topic_id: Uuid | None
    is_internal: bool


class TopicOperations(Operations):
    """Operations on topics."""

    async def create_topics(
        self,
        topics: Iterable[NewTopic | str],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> Outcomes[str, CreatedTopic]:
        """Create topics; with `validate_only`, only tell whether that would work.

        A name alone stands for a topic with the broker's defaults.
        """
        wanted = {each.name: self._creatable(each) for each in _new_topics(topics)}
        limit_ms = self._brokers_limit_ms(timeout)

        def request(names: Sequence[str]) -> VersionedRequest:
            listed = [wanted[each] for each in names]
            needs_defaults = any(_takes_defaults(each) for each in listed)

            def build(version: int) -> CreateTopicsRequest:
                if needs_defaults and version < _DEFAULTS_FROM:
                    raise UnsupportedVersion(
                        "CreateTopics: give partitions and replication factor; "
                        "the broker is too old to have defaults for them"
                    )
                return CreateTopicsRequest(
                    topics=listed, timeout_ms=limit_ms, validate_only=validate_only
                )

            return VersionedRequest(ApiKey.CREATE_TOPICS, build)

        def read(
            answer: CreateTopicsResponse, _names: Sequence[str]
        ) -> dict[str, CreatedTopic | MillstreamError]:
            return {
                name: error_or(_created(each, name), each.error_code, each.error_message)
                for each in answer.topics
                if (name := self._names.from_wire(each.name)) is not None
            }

        return await self._each(wanted, lambda _: CONTROLLER, request, read, timeout)

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
        timeout: float | None = None,
    ) -> CreatedTopic:
        """Create a topic."""
        topic = NewTopic(name, partitions, replication_factor, config or {})
        return (await self.create_topics([topic], timeout=timeout))[name]

    async def delete_topics(
        self, topics: Iterable[str], *, timeout: float | None = None
    ) -> Outcomes[str, None]:
        """Delete topics with all their records."""
        limit_ms = self._brokers_limit_ms(timeout)

        def request(names: Sequence[str]) -> VersionedRequest:
            wire_names = [self._names.to_wire(each) for each in names]

            def build(version: int) -> DeleteTopicsRequest:
                if version < _DELETE_BY_STATE_FROM:
                    return DeleteTopicsRequest(topic_names=wire_names, timeout_ms=limit_ms)
                states = [DeleteTopicState(name=each) for each in wire_names]
                return DeleteTopicsRequest(topics=states, timeout_ms=limit_ms)

            return VersionedRequest(ApiKey.DELETE_TOPICS, build)

        def read(
            answer: DeleteTopicsResponse, _names: Sequence[str]
        ) -> dict[str, MillstreamError | None]:
            return {
                name: error_or(None, each.error_code, each.error_message)
                for each in answer.responses
                if (name := self._names.from_wire(each.name or "")) is not None
            }

        return await self._each(topics, lambda _: CONTROLLER, request, read, timeout)

    async def delete_topic(self, name: str, *, timeout: float | None = None) -> None:
        """Delete a topic with all its records."""
        (await self.delete_topics([name], timeout=timeout))[name]

    async def list_topics(
        self, *, include_internal: bool = False, timeout: float | None = None
    ) -> list[TopicListing]:
        """All topics, by name."""
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        answer = await self._call(request, ANY, MetadataResponse, timeout)
        listed = [
            TopicListing(name, _id_or_none(each.topic_id), each.is_internal)
            for each in answer.topics
            if (name := self._names.from_wire(each.name or "")) is not None
            and (include_internal or not each.is_internal)
        ]
        return sorted(listed, key=lambda each: each.name)

    async def describe_topics(
        self, topics: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> Outcomes[str, TopicDescription]:
        """Who has the partitions of topics, and who leads them; of all if none are named."""
        if topics is None:
            return await self._describe_all_topics(timeout)

        def request(names: Sequence[str]) -> MetadataRequest:
            listed = [MetadataRequestTopic(name=self._names.to_wire(each)) for each in names]
            return MetadataRequest(topics=listed, allow_auto_topic_creation=False)

        def read(
            answer: MetadataResponse, _names: Sequence[str]
        ) -> dict[str, TopicDescription | MillstreamError]:
            return {
                name: _described(each, name)
                for each in answer.topics
                if (name := self._names.from_wire(each.name or "")) is not None
            }

        return await self._each(topics, lambda _: ANY, request, read, timeout)

    async def _describe_all_topics(self, timeout: float | None) -> Outcomes[str, TopicDescription]:
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        answer = await self._call(request, ANY, MetadataResponse, timeout)
        found = {
            name: _described(each, name)
            for each in sorted(answer.topics, key=lambda each: each.name or "")
            if (name := self._names.from_wire(each.name or "")) is not None
        }
        return Outcomes(
            {name: each for name, each in found.items() if isinstance(each, TopicDescription)},
            {name: each for name, each in found.items() if isinstance(each, MillstreamError)},
        )

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> Outcomes[str, None]:
        """Raise the number of partitions of topics to the given totals.

        `assignments` may name the brokers of each new partition of a topic.
        """
        limit_ms = self._brokers_limit_ms(timeout)

        def request(names: Sequence[str]) -> CreatePartitionsRequest:
            listed = [
                CreatePartitionsTopic(
                    name=self._names.to_wire(each),
                    count=counts[each],
                    assignments=_new_partitions((assignments or {}).get(each)),
                )
                for each in names
            ]
            return CreatePartitionsRequest(
                topics=listed, timeout_ms=limit_ms, validate_only=validate_only
            )

        def read(
            answer: CreatePartitionsResponse, _names: Sequence[str]
        ) -> dict[str, MillstreamError | None]:
            return {
                name: error_or(None, each.error_code, each.error_message)
                for each in answer.results
                if (name := self._names.from_wire(each.name)) is not None
            }

        return await self._each(counts, lambda _: CONTROLLER, request, read, timeout)

    def _creatable(self, topic: NewTopic) -> CreatableTopic:
        is_assigned = topic.assignment is not None
        if is_assigned and (topic.partitions is not None or topic.replication_factor is not None):
            raise InvalidArgument(
                f"topic {topic.name!r}: give an assignment, or partitions and replication factor"
            )
        return CreatableTopic(
            name=self._names.to_wire(topic.name),
            num_partitions=-1 if topic.partitions is None else topic.partitions,
            replication_factor=-1 if topic.replication_factor is None else topic.replication_factor,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
                for index, brokers in sorted((topic.assignment or {}).items())
            ],
            configs=[
                CreatableTopicConfig(name=name, value=setting_text(value))
                for name, value in topic.config.items()
            ],
        )


def _new_topics(given: Iterable[NewTopic | str]) -> list[NewTopic]:
    if isinstance(given, str | NewTopic) or not isinstance(given, Iterable):
        raise InvalidArgument(f"{given!r} is no list of topics; give [NewTopic(...), ...]")
    listed = [NewTopic(each) if isinstance(each, str) else each for each in given]
    for each in listed:
        if not isinstance(each, NewTopic):
            raise InvalidArgument(f"{each!r} is no topic to create; give NewTopic(name), or a name")
    return listed


def _takes_defaults(topic: CreatableTopic) -> bool:
    return not topic.assignments and -1 in (topic.num_partitions, topic.replication_factor)


def setting_text(value: object) -> str | None:
    """A setting's value as brokers take it: lists joined, booleans in small letters."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(str(each) for each in value)
    return str(value)


def _created(told: CreatableTopicResult, name: str) -> CreatedTopic:
    return CreatedTopic(
        name,
        _id_or_none(told.topic_id),
        told.num_partitions if told.num_partitions >= 0 else None,
        told.replication_factor if told.replication_factor >= 0 else None,
        {each.name: each.value for each in told.configs or ()},
    )


def _described(told: MetadataResponseTopic, name: str) -> TopicDescription | MillstreamError:
    if told.error_code:
        return error_for_code(told.error_code)
    return TopicDescription(
        name,
        _id_or_none(told.topic_id),
        told.is_internal,
        tuple(
            PartitionDescription(
                each.partition_index,
                each.leader_id if each.leader_id >= 0 else None,
                each.leader_epoch if each.leader_epoch >= 0 else None,
                tuple(each.replica_nodes),
                tuple(each.isr_nodes),
                tuple(each.offline_replicas),
            )
            for each in sorted(told.partitions, key=lambda each: each.partition_index)
        ),
    )


def _new_partitions(
    assignment: Sequence[Sequence[int]] | None,
) -> list[CreatePartitionsAssignment] | None:
    if assignment is None:
        return None
    return [CreatePartitionsAssignment(broker_ids=list(each)) for each in assignment]


def _id_or_none(topic_id: Uuid) -> Uuid | None:
    return None if topic_id == Uuid.ZERO else topic_id
