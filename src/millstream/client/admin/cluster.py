"""The cluster itself: brokers, features, the quorum, log directories."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from millstream.client.admin.operations import Operations, error_or, raise_for
from millstream.client.router import ANY, CONTROLLER
from millstream.errors import MillstreamError, UnsupportedVersion, error_for_code
from millstream.network.client.network_client import VersionedRequest
from millstream.protocol.api import ApiKey
from millstream.protocol.messages.add_raft_voter import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    Listener,
)
from millstream.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from millstream.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from millstream.protocol.messages.metadata import MetadataRequest, MetadataResponse
from millstream.protocol.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from millstream.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from millstream.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.client.admin.outcomes import Outcomes
    from millstream.network.client.broker_link import Feature
    from millstream.protocol.messages.describe_quorum import ReplicaState

UpgradeType: TypeAlias = Literal["upgrade", "safe_downgrade", "unsafe_downgrade"]
_UPGRADE_TYPES: Final[Mapping[UpgradeType, int]] = {
    "upgrade": 1,
    "safe_downgrade": 2,
    "unsafe_downgrade": 3,
}
_METADATA_TOPIC: Final = "__cluster_metadata"


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A broker of the cluster."""

    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The brokers of the cluster, and its controller."""

    cluster_id: str | None
    controller_id: int | None
    """The broker that takes what the controller is asked; not always the controller itself."""
    brokers: tuple[BrokerDescription, ...]


@dataclass(frozen=True, slots=True)
class QuorumEndpoint:
    """A listener of a node of the quorum."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A voter or observer of the quorum."""

    node_id: int
    directory_id: Uuid | None
    log_end_offset: int
    last_fetch_timestamp: int | None
    last_caught_up_timestamp: int | None


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The quorum that keeps the cluster's metadata."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    endpoints: Mapping[int, tuple[QuorumEndpoint, ...]] = field(default_factory=dict)
    """Where each node takes the requests of the quorum, as far as the broker tells."""


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """A level that a feature of the cluster is to have; 0 takes it out of use."""

    level: int
    upgrade_type: UpgradeType = "upgrade"


class ClusterOperations(Operations):
    """Operations on the cluster."""

    async def connect(self, *, timeout: float | None = None) -> None:
        """Find a broker; BootstrapFailed as soon as each address that was given has failed.

        Other calls do it by themselves, and try until their time is over: a broker may be just
        starting. This is for who would rather know now that an address is wrong.
        """
        await self._wait_for_brokers(timeout, is_patient=False)

    async def describe_cluster(
        self, *, include_fenced_brokers: bool = False, timeout: float | None = None
    ) -> ClusterDescription:
        """The brokers, and the controller."""

        def build(version: int) -> DescribeClusterRequest:
            return DescribeClusterRequest(
                include_fenced_brokers=include_fenced_brokers and version >= 2
            )

        request = VersionedRequest(ApiKey.DESCRIBE_CLUSTER, build)
        try:
            answer = await self._call(request, ANY, DescribeClusterResponse, timeout)
        except UnsupportedVersion:  # Before Kafka 2.8.
            told = await self._call(MetadataRequest(topics=[]), ANY, MetadataResponse, timeout)
            return _from_metadata(told)
        return ClusterDescription(
            answer.cluster_id,
            _or_none(answer.controller_id),
            tuple(
                BrokerDescription(each.broker_id, each.host, each.port, each.rack, each.is_fenced)
                for each in sorted(answer.brokers, key=lambda each: each.broker_id)
            ),
        )

    async def describe_features(self, *, timeout: float | None = None) -> dict[str, Feature]:
        """The features of the cluster: the level each is at, and what the broker could do."""
        await self._brokers(timeout)
        await self._call(MetadataRequest(topics=[]), ANY, MetadataResponse, timeout)
        network = self._runtime.network
        connected = [each for each in network.members() if network.is_connected(each)]
        return {each.name: each for node_id in connected for each in network.features_of(node_id)}

    async def update_features(
        self,
        updates: Mapping[str, FeatureUpdate],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> Outcomes[str, None]:
        """Raise or lower features of the whole cluster; all of them or none."""
        limit_ms = self._brokers_limit_ms(timeout)

        def request(names: Sequence[str]) -> VersionedRequest:
            def build(version: int) -> UpdateFeaturesRequest:
                return UpdateFeaturesRequest(
                    timeout_ms=limit_ms,
                    validate_only=validate_only,
                    feature_updates=[
                        _feature_update(each, updates[each], version) for each in names
                    ],
                )

            return VersionedRequest(ApiKey.UPDATE_FEATURES, build)

        def read(
            answer: UpdateFeaturesResponse, names: Sequence[str]
        ) -> dict[str, MillstreamError | None]:
            raise_for(answer)
            told = {each.feature: each for each in answer.results}
            return {
                each: error_or(None, told[each].error_code, told[each].error_message)
                if each in told
                else None
                for each in names
            }

        return await self._each(updates, lambda _: CONTROLLER, request, read, timeout)

    async def describe_quorum(self, *, timeout: float | None = None) -> QuorumDescription:
        """The voters and observers of the metadata quorum, and how far each is."""
        partition = DescribeQuorumRequestPartitionData(partition_index=0)
        topic = DescribeQuorumRequestTopicData(topic_name=_METADATA_TOPIC, partitions=[partition])
        answer = await self._call(
            DescribeQuorumRequest(topics=[topic]), ANY, DescribeQuorumResponse, timeout
        )
        told = answer.topics[0].partitions[0]
        if told.error_code:
            raise error_for_code(told.error_code, told.error_message)
        return QuorumDescription(
            told.leader_id,
            told.leader_epoch,
            told.high_watermark,
            tuple(map(_replica, told.current_voters)),
            tuple(map(_replica, told.observers)),
            {
                node.node_id: tuple(
                    QuorumEndpoint(each.name, each.host, each.port) for each in node.listeners
                )
                for node in answer.nodes
            },
        )

    async def add_raft_voter(
        self,
        node_id: int,
        directory_id: Uuid,
        endpoints: Sequence[QuorumEndpoint],
        *,
        cluster_id: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Make a controller that runs a voter of the quorum; it must have caught up."""
        request = AddRaftVoterRequest(
            cluster_id=cluster_id,
            timeout_ms=self._brokers_limit_ms(timeout),
            voter_id=node_id,
            voter_directory_id=directory_id,
            listeners=[
                Listener(name=each.listener, host=each.host, port=each.port) for each in endpoints
            ],
        )
        await self._call(request, CONTROLLER, AddRaftVoterResponse, timeout)

    async def remove_raft_voter(
        self,
        node_id: int,
        directory_id: Uuid,
        *,
        cluster_id: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Take a voter out of the quorum."""
        request = RemoveRaftVoterRequest(
            cluster_id=cluster_id, voter_id=node_id, voter_directory_id=directory_id
        )
        await self._call(request, CONTROLLER, RemoveRaftVoterResponse, timeout)

    async def unregister_broker(self, node_id: int, *, timeout: float | None = None) -> None:
        """Have the cluster forget a broker that will not come back."""
        request = UnregisterBrokerRequest(broker_id=node_id)
        await self._call(request, CONTROLLER, UnregisterBrokerResponse, timeout)


def _feature_update(name: str, update: FeatureUpdate, version: int) -> FeatureUpdateKey:
    if version == 0:
        return FeatureUpdateKey(
            feature=name,
            max_version_level=update.level,
            allow_downgrade=update.upgrade_type != "upgrade",
        )
    return FeatureUpdateKey(
        feature=name,
        max_version_level=update.level,
        upgrade_type=_UPGRADE_TYPES[update.upgrade_type],
    )


def _from_metadata(answer: MetadataResponse) -> ClusterDescription:
    return ClusterDescription(
        answer.cluster_id,
        _or_none(answer.controller_id),
        tuple(
            BrokerDescription(each.node_id, each.host, each.port, each.rack)
            for each in sorted(answer.brokers, key=lambda each: each.node_id)
        ),
    )


def _replica(told: ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        told.replica_id,
        None if told.replica_directory_id == Uuid.ZERO else told.replica_directory_id,
        told.log_end_offset,
        _or_none(told.last_fetch_timestamp),
        _or_none(told.last_caught_up_timestamp),
    )


def _or_none(number: int) -> int | None:
    return number if number >= 0 else None
