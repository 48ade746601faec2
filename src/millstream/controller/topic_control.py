"""Topics: create, delete, add partitions. Rule 15 of section 6.6 of the facts.

Each topic of a request succeeds or fails on its own; what succeeds is written in one batch.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from millstream.controller.assignments import (
    UnplacedTopic,
    assignment_of,
    check_assignment,
    new_partition,
    placer,
)
from millstream.controller.decision import RECORDS_PER_BATCH_MAX, Decision, RequestContext
from millstream.controller.ports import NewTopic
from millstream.controller.topic_configs import effective_topic_configs
from millstream.errors import (
    ApiError,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidRequest,
    InvalidTopic,
    PolicyViolation,
    TopicAlreadyExists,
    TopicAuthorizationFailed,
    TopicDeletionDisabled,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from millstream.metadata.configs import ConfigResource, ResourceType
from millstream.metadata.topic_names import (
    CLUSTER_METADATA_TOPIC,
    check_topic_name,
    collision_key,
)
from millstream.protocol.messages.create_partitions import (
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from millstream.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from millstream.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from millstream.protocol.messages.topic_records import RemoveTopicRecord, TopicRecord
from millstream.types import Uuid

if TYPE_CHECKING:
    from millstream.controller.config import ControllerConfig
    from millstream.controller.configuration_control import ConfigurationControl
    from millstream.controller.ports import CreateTopicPolicy, MutationQuota
    from millstream.controller.replication_control import ControllerState
    from millstream.metadata.topics import TopicImage
    from millstream.protocol.message import Message
    from millstream.protocol.messages.create_partitions import CreatePartitionsRequest
    from millstream.protocol.messages.create_topics import CreateTopicsRequest
    from millstream.protocol.messages.delete_topics import DeleteTopicsRequest

_STRICT_CREATE_TOPICS: Final = 6
_STRICT_DELETE_TOPICS: Final = 5
_STRICT_CREATE_PARTITIONS: Final = 3
"""From these versions on a client understands that its quota is used up."""

_DELETION_DISABLED_SINCE: Final = 3


class TopicControl:
    """Decides about topics."""

    def __init__(
        self,
        state: ControllerState,
        configuration: ConfigurationControl,
        config: ControllerConfig,
        quota: MutationQuota,
        policy: CreateTopicPolicy | None = None,
    ) -> None:
        self._state = state
        self._configuration = configuration
        self._config = config
        self._quota = quota
        self._policy = policy

    def create_topics(
        self, request: CreateTopicsRequest, context: RequestContext
    ) -> Decision[CreateTopicsResponse]:
        """Create topics with their settings and partitions."""
        self._check_partition_total(request)
        batch = _Creation(self._state)
        response = CreateTopicsResponse()
        occurrences = Counter(topic.name for topic in request.topics)
        for topic in request.topics:
            if not occurrences[topic.name]:
                continue
            result = CreatableTopicResult(name=topic.name, error_message=None, configs=None)
            response.topics.append(result)
            try:
                if occurrences[topic.name] > 1:
                    occurrences[topic.name] = 0
                    raise InvalidRequest(f"topic {topic.name} occurs more than once")
                records, partition_count = self._create(topic, batch, result, context)
                throttle_ms = self._quota.charge(
                    context, partition_count, is_strict=context.version >= _STRICT_CREATE_TOPICS
                )
                response.throttle_time_ms = max(response.throttle_time_ms, throttle_ms)
                batch.accept(topic.name, records)
            except ApiError as error:
                _fail(result, error)
        return Decision(response, [] if request.validate_only else batch.records)

    def delete_topics(
        self, request: DeleteTopicsRequest, context: RequestContext
    ) -> Decision[DeleteTopicsResponse]:
        """Delete topics, named or by id."""
        response = DeleteTopicsResponse()
        deleted: set[Uuid] = set()
        asked: list[tuple[str | None, Uuid]]
        if context.version < 6:
            asked = [(name, Uuid.ZERO) for name in request.topic_names]
        else:
            asked = [(each.name, each.topic_id) for each in request.topics]
        occurrences = Counter(asked)
        for name, topic_id in occurrences:
            result = DeletableTopicResult(name=name, topic_id=topic_id)
            response.responses.append(result)
            try:
                if occurrences[name, topic_id] > 1:
                    raise InvalidRequest("the topic occurs more than once")
                topic = self._deletable(name, topic_id, context.version)
                if topic.id in deleted:
                    raise InvalidRequest("the topic occurs by name and by id")
                throttle_ms = self._quota.charge(
                    context,
                    len(topic.partitions),
                    is_strict=context.version >= _STRICT_DELETE_TOPICS,
                )
                response.throttle_time_ms = max(response.throttle_time_ms, throttle_ms)
                result.name, result.topic_id = topic.name, topic.id
                deleted.add(topic.id)
            except ApiError as error:
                result.error_code, result.error_message = error.code, str(error)
        return Decision(response, [RemoveTopicRecord(topic_id=each) for each in sorted(deleted)])

    def create_partitions(
        self, request: CreatePartitionsRequest, context: RequestContext
    ) -> Decision[CreatePartitionsResponse]:
        """Add partitions to topics. Records with keys may then land elsewhere: that is known."""
        response = CreatePartitionsResponse()
        records: list[Message] = []
        occurrences = Counter(topic.name for topic in request.topics)
        for topic in request.topics:
            if not occurrences[topic.name]:
                continue
            result = CreatePartitionsTopicResult(name=topic.name)
            response.results.append(result)
            try:
                if occurrences[topic.name] > 1:
                    occurrences[topic.name] = 0
                    raise InvalidRequest(f"topic {topic.name} occurs more than once")
                added = self._add_partitions(topic)
                throttle_ms = self._quota.charge(
                    context, len(added), is_strict=context.version >= _STRICT_CREATE_PARTITIONS
                )
                response.throttle_time_ms = max(response.throttle_time_ms, throttle_ms)
                records += added
            except ApiError as error:
                result.error_code, result.error_message = error.code, str(error)
        return Decision(response, [] if request.validate_only else records)

    def _check_partition_total(self, request: CreateTopicsRequest) -> None:
        total = sum(
            len(topic.assignments) or max(topic.num_partitions, 1) for topic in request.topics
        )
        if total > RECORDS_PER_BATCH_MAX:
            raise PolicyViolation(
                f"{total} partitions in one request, the limit is {RECORDS_PER_BATCH_MAX}"
            )

    def _create(
        self,
        topic: CreatableTopic,
        batch: _Creation,
        result: CreatableTopicResult,
        context: RequestContext,
    ) -> tuple[list[Message], int]:
        """The records of a new topic, and how many partitions it has."""
        batch.check_name(topic.name)
        resource = ConfigResource(ResourceType.TOPIC, topic.name)
        configs, config_records = self._configuration.new_topic_configs(resource, topic.configs)
        unplaced = UnplacedTopic.from_request(topic, self._config)
        assignments = assignment_of(unplaced, self._state)
        if self._policy is not None:
            self._policy.check(NewTopic(topic.name, assignments, configs))
        topic_id = batch.new_topic_id()
        partitions = [
            new_partition(self._state.image, topic_id, partition_id, replicas, unplaced.is_manual)
            for partition_id, replicas in sorted(assignments.items())
        ]
        result.topic_id = topic_id
        result.num_partitions = len(assignments)
        result.replication_factor = len(assignments[0])
        result.configs = effective_topic_configs(self._state, configs)
        topic_record = TopicRecord(name=topic.name, topic_id=topic_id)
        return [topic_record, *config_records, *partitions], len(partitions)

    def _deletable(self, name: str | None, topic_id: Uuid, version: int) -> TopicImage:
        if not self._config.delete_topic_enable:
            if version < _DELETION_DISABLED_SINCE:
                raise InvalidRequest("topic deletion is disabled")
            raise TopicDeletionDisabled
        topics = self._state.image.topics
        if name is not None and topic_id != Uuid.ZERO:
            raise InvalidRequest("a topic is given by its name or by its id, not by both")
        if topic_id != Uuid.ZERO:
            topic = topics.by_id.get(topic_id)
            if topic is None:
                raise UnknownTopicId(f"there is no topic with id {topic_id}")
            return topic
        if name is None:
            raise InvalidRequest("neither a name nor an id is given")
        topic = topics.by_name.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"there is no topic {name!r}")
        return topic

    def _add_partitions(self, asked: CreatePartitionsTopic) -> list[Message]:
        image = self._state.image
        topic = image.topics.by_name.get(asked.name)
        if topic is None:
            raise UnknownTopicOrPartition(f"there is no topic {asked.name}")
        existing = len(topic.partitions)
        added = asked.count - existing
        if added <= 0:
            raise InvalidPartitions(
                f"topic {asked.name} has {existing} partitions; it can only get more, "
                f"not {asked.count}"
            )
        if added > RECORDS_PER_BATCH_MAX:
            raise PolicyViolation(
                f"{added} partitions in one request, the limit is {RECORDS_PER_BATCH_MAX}"
            )
        replication_factor = len(topic.partitions[0].replicas)
        if asked.assignments is None:
            place = placer(self._state)
            placed = [place.place(replication_factor) for _ in range(added)]
        else:
            if len(asked.assignments) != added:
                raise InvalidReplicaAssignment(
                    f"{added} partitions are to be added, {len(asked.assignments)} are assigned"
                )
            placed = [each.broker_ids for each in asked.assignments]
            for replicas in placed:
                check_assignment(image, replicas, replication_factor)
        return [
            new_partition(
                image, topic.id, existing + index, replicas, asked.assignments is not None
            )
            for index, replicas in enumerate(placed)
        ]


class _Creation:
    """The topics of one request that are accepted so far."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state
        self.records: list[Message] = []
        self._collision_keys: dict[str, str] = {}

    def check_name(self, name: str) -> None:
        """Raise if a topic cannot be called so."""
        check_topic_name(name)
        if name == CLUSTER_METADATA_TOPIC:
            raise TopicAuthorizationFailed(f"{name} is the metadata log itself")
        topics = self._state.image.topics.by_name
        if name in topics:
            raise TopicAlreadyExists(f"topic {name} exists already")
        self._check_collision(name)

    def _check_collision(self, name: str) -> None:
        key = collision_key(name)
        other = self._collision_keys.get(key) or self._state.index.topic_with_key(key)
        if other is not None:
            raise InvalidTopic(
                f"topic {name} collides with topic {other}: '.' and '_' cannot be told apart "
                "in metric names"
            )

    def new_topic_id(self) -> Uuid:
        """An id that no topic has."""
        while True:
            topic_id = Uuid.random(self._state.random)
            if topic_id not in self._state.image.topics.by_id:
                return topic_id

    def accept(self, name: str, records: list[Message]) -> None:
        """A topic will be created."""
        if len(self.records) + len(records) > RECORDS_PER_BATCH_MAX:
            raise PolicyViolation(
                f"the request makes more than {RECORDS_PER_BATCH_MAX} records: split it"
            )
        self.records += records
        self._collision_keys[collision_key(name)] = name


def _fail(result: CreatableTopicResult, error: ApiError) -> None:
    result.error_code, result.error_message = error.code, str(error)
    result.topic_id = Uuid.ZERO
    result.num_partitions = result.replication_factor = -1
    result.configs = None
