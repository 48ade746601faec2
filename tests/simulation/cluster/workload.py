"""What an operator does to a cluster all day, and what must have come of it in the end.

Topics come and go, grow and are configured; voters leave and come back. One request of a subject
is under way at a time. A request that was not answered well may have been done, or be done later.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from millstream.controller.configuration_control import AlterOperation
from millstream.errors import NO_ERROR, MillstreamError
from millstream.metadata.configs import ResourceType
from millstream.protocol.messages.add_raft_voter import AddRaftVoterRequest
from millstream.protocol.messages.add_raft_voter import Listener as VoterListener
from millstream.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from millstream.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from millstream.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from millstream.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from millstream.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from millstream.testing.simulation.client import SimClient
from millstream.testing.simulation.cluster import CONTROLLER_PORT, host_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from millstream.metadata.image import MetadataImage
    from millstream.protocol.message import Message
    from millstream.testing.simulation import SimCluster
    from tests.simulation.cluster.history import History

_SETTING: Final = "retention.ms"
_TIMEOUT_MS: Final = 5000
_TOPICS_MAX: Final = 12


@dataclass
class Topic:
    """A topic as far as the answers tell."""

    name: str
    partitions: int
    is_made: bool = False
    is_deletion_asked: bool = False
    is_deleted: bool = False
    is_busy: bool = False
    asked_partitions: int = 0
    settings: set[str | None] = field(default_factory=lambda: {None})
    """What the setting may be."""

    def check(self, image: MetadataImage, where: str) -> None:
        """Whether an image that has everything so far agrees with the answers."""
        found = image.topics.by_name.get(self.name)
        if self.is_deleted:
            assert found is None, f"{where}: {self.name} was deleted and is there"
        elif self.is_made and not self.is_deletion_asked:
            assert found is not None, f"{where}: {self.name} was made and is not there"
            count = len(found.partitions)
            asked = max(self.partitions, self.asked_partitions)
            assert self.partitions <= count <= asked, f"{where}: {self.name} has {count} partitions"
            value = image.configs.of(ResourceType.TOPIC, self.name).get(_SETTING)
            assert value in self.settings, f"{where}: {self.name} has {value}: {self.settings}"


class Workload:
    """Sends the requests and remembers the answers."""

    def __init__(self, cluster: SimCluster, history: History, random: Random) -> None:
        self._cluster = cluster
        self._history = history
        self._random = random
        self._client = SimClient(cluster.world, "operator")
        self._topics: dict[str, Topic] = {}
        self._values = 0
        self._is_changing_voters = False
        self.answered = 0
        """How many requests were answered well."""

    def step(self) -> None:
        """Ask for something."""
        live = [each for each in self._topics.values() if not each.is_deletion_asked]
        free = [each for each in live if each.is_made and not each.is_busy]
        choice = self._random.random()
        if choice < 0.08 and not self._is_changing_voters:
            self._change_voters()
        elif not free or (choice < 0.5 and len(live) < _TOPICS_MAX):
            self._create()
        elif choice < 0.65:
            self._delete(self._random.choice(free))
        elif choice < 0.75:
            self._grow(self._random.choice(free))
        else:
            self._configure(self._random.choice(free))

    def check(self, image: MetadataImage, where: str) -> None:
        """Whether the answers were true."""
        for topic in self._topics.values():
            topic.check(image, where)

    # Requests.

    def _create(self) -> None:
        topic = Topic(f"topic{len(self._topics)}", self._random.randint(1, 3))
        self._topics[topic.name] = topic
        factor = self._random.randint(1, len(self._cluster.broker_ids))
        made = CreatableTopic(
            name=topic.name, num_partitions=topic.partitions, replication_factor=factor
        )
        request = CreateTopicsRequest(topics=[made], timeout_ms=_TIMEOUT_MS)
        self._ask(topic, request, partial(setattr, topic, "is_made", True))

    def _delete(self, topic: Topic) -> None:
        topic.is_deletion_asked = True
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=topic.name)],
            topic_names=[topic.name],
            timeout_ms=_TIMEOUT_MS,
        )
        self._ask(topic, request, partial(setattr, topic, "is_deleted", True))

    def _grow(self, topic: Topic) -> None:
        count = max(topic.partitions, topic.asked_partitions) + 1
        topic.asked_partitions = count
        grown = CreatePartitionsTopic(name=topic.name, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[grown], timeout_ms=_TIMEOUT_MS)
        self._ask(topic, request, partial(setattr, topic, "partitions", count))

    def _configure(self, topic: Topic) -> None:
        self._values += 1
        value = str(1_000_000 + self._values)
        change = AlterableConfig(name=_SETTING, config_operation=AlterOperation.SET, value=value)
        resource = AlterConfigsResource(
            resource_type=ResourceType.TOPIC, resource_name=topic.name, configs=[change]
        )
        unsure = len(topic.settings) > 1
        topic.settings.add(value)

        def done() -> None:
            # What was never answered may still come, and overwrite this.
            if not unsure:
                topic.settings = {value}

        self._ask(topic, IncrementalAlterConfigsRequest(resources=[resource]), done)

    def _change_voters(self) -> None:
        """Remove a voter, or add one that is none; two are always left."""
        leader_id = self._cluster.controller_id()
        if leader_id is None:
            return
        shared = self._cluster.node(leader_id).shared
        assert shared is not None
        voters = shared.driver.core.voters
        others = [each for each in self._cluster.controller_ids if voters.get(each) is None]
        request: Message
        if others and (len(voters) < 3 or self._random.random() < 0.7):
            node = self._cluster.machines[self._random.choice(others)].node
            if node is None or node.shared is None:
                return
            key = node.shared._local.key
            where = VoterListener(name="CONTROLLER", host=host_of(key.id), port=CONTROLLER_PORT)
            request = AddRaftVoterRequest(
                cluster_id=None,
                timeout_ms=_TIMEOUT_MS,
                voter_id=key.id,
                voter_directory_id=key.directory_id,
                listeners=[where],
            )
        elif len(voters) >= 3:
            voter = voters.get(self._random.choice(voters.ids))
            assert voter is not None
            request = RemoveRaftVoterRequest(
                cluster_id=None,
                voter_id=voter.key.id,
                voter_directory_id=voter.key.directory_id,
            )
        else:
            return
        self._is_changing_voters = True
        self._ask(None, request, lambda: None)

    # Answers.

    def _ask(self, topic: Topic | None, request: Message, done: Callable[[], None]) -> None:
        if topic is not None:
            topic.is_busy = True
        node_id = self._random.choice(self._cluster.broker_ids)
        what = type(request).__name__.removesuffix("Request")
        subject = "the voters" if topic is None else topic.name
        self._cluster.world.note(f"operator: {what} of {subject} at node{node_id}")
        answered = partial(self._answered, topic, f"{what} of {subject}", done)
        self._client.send(
            node_id, request, lambda result, now_ms: answered(result), timeout_ms=_TIMEOUT_MS
        )

    def _answered(
        self,
        topic: Topic | None,
        what: str,
        done: Callable[[], None],
        result: Message | MillstreamError,
    ) -> None:
        if topic is None:
            self._is_changing_voters = False
        else:
            topic.is_busy = False
        problem = _problem_of(result)
        self._cluster.world.note(f"operator: {what}: {problem or 'done'}")
        if problem is None:
            self.answered += 1
            done()
            if topic is not None:
                # What is answered is committed.
                topic.check(self._history.newest, f"when {what} was answered")


def _problem_of(result: Message | MillstreamError) -> str | None:
    if isinstance(result, MillstreamError):
        return f"{type(result).__name__}: {result}"
    for name in ("topics", "responses", "results"):
        for each in getattr(result, name, ()):
            if each.error_code != NO_ERROR:
                return f"error {each.error_code}"
    code = getattr(result, "error_code", NO_ERROR)
    return None if code == NO_ERROR else f"error {code}"
