"""All the controls of an active controller, and which of them decides about which request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from millstream.controller.acl_control import create_acls, delete_acls
from millstream.controller.client_quota_control import alter_client_quotas
from millstream.controller.cluster_control import ClusterControl
from millstream.controller.config_schema import ConfigSchema
from millstream.controller.configuration_control import ConfigurationControl
from millstream.controller.delegation_token_control import DelegationTokenControl
from millstream.controller.directory_control import DirectoryControl
from millstream.controller.election_control import ElectionControl
from millstream.controller.feature_control import FeatureControl
from millstream.controller.isr_control import IsrControl
from millstream.controller.ports import UnlimitedMutations
from millstream.controller.producer_id_control import allocate_producer_ids
from millstream.controller.reassignment_control import ReassignmentControl
from millstream.controller.replication_control import ReplicationControl
from millstream.controller.scram_control import alter_scram_credentials
from millstream.controller.sessions import BrokerSessions
from millstream.controller.topic_control import TopicControl

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.config import Key
    from millstream.controller.config import ControllerConfig
    from millstream.controller.decision import Decision, RequestContext
    from millstream.controller.ports import AlterConfigPolicy, CreateTopicPolicy, MutationQuota
    from millstream.controller.replication_control import ControllerState
    from millstream.protocol.message import Message


@dataclass(frozen=True, slots=True)
class ControllerSeams:
    """What the node may bring: quotas, policies, the settings that brokers know, the quorum."""

    quota: MutationQuota = field(default_factory=UnlimitedMutations)
    create_topic_policy: CreateTopicPolicy | None = None
    alter_config_policy: AlterConfigPolicy | None = None
    broker_settings: Sequence[type] = ()
    listener_key: Callable[[str], Key | None] = lambda _: None
    quorum_ids: Callable[[], frozenset[int]] = frozenset
    """The ids of the quorum's voters right now."""


class Controls:
    """One of each control, over the same state. Made when a controller becomes active."""

    def __init__(
        self,
        state: ControllerState,
        config: ControllerConfig,
        seams: ControllerSeams,
        *,
        node_id: int,
        cluster_id: str,
        upgrade_kraft_version: Callable[[int, bool], None],
    ) -> None:
        self.state = state
        self.sessions = BrokerSessions(
            config.broker_session_timeout_ms,
            node_id,
            is_alone=lambda: seams.quorum_ids() <= {node_id},
        )
        self.replication = ReplicationControl(state)
        self.cluster = ClusterControl(state, self.replication, self.sessions, cluster_id)
        schema = ConfigSchema(
            state.topic_defaults,
            seams.broker_settings,
            listener_key=seams.listener_key,
        )
        self.configuration = ConfigurationControl(
            state, schema, seams.quorum_ids, seams.alter_config_policy
        )
        self.topics = TopicControl(
            state, self.configuration, config, seams.quota, seams.create_topic_policy
        )
        self.isr = IsrControl(state, self.replication)
        self.elections = ElectionControl(state, self.replication)
        self.reassignments = ReassignmentControl(state, self.replication)
        self.directories = DirectoryControl(state, self.replication)
        self.features = FeatureControl(
            state, self.configuration, node_id, seams.quorum_ids, upgrade_kraft_version
        )
        self.tokens = DelegationTokenControl(state, config)

    def decide(
        self, request: Message, context: RequestContext, next_offset: int
    ) -> Decision[Message]:
        """Find the control for a request and let it decide."""
        by_offset = _BY_OFFSET.get(type(request).__name__)
        if by_offset is not None:
            return by_offset(self, request, context, next_offset)
        return _DECIDERS[type(request).__name__](self, request, context)


# By name: the request classes themselves are not needed here.
_BY_OFFSET: Final[dict[str, Callable[[Controls, Any, Any, int], Decision[Any]]]] = {
    "BrokerRegistrationRequest": lambda c, r, x, offset: c.cluster.register_broker(r, x, offset),
    "BrokerHeartbeatRequest": lambda c, r, x, offset: c.cluster.heartbeat(r, x, offset),
}
_DECIDERS: Final[dict[str, Callable[[Controls, Any, Any], Decision[Any]]]] = {
    "UnregisterBrokerRequest": lambda c, r, _: c.cluster.unregister_broker(r),
    "ControllerRegistrationRequest": lambda c, r, _: c.cluster.register_controller(r),
    "CreateTopicsRequest": lambda c, r, x: c.topics.create_topics(r, x),
    "DeleteTopicsRequest": lambda c, r, x: c.topics.delete_topics(r, x),
    "CreatePartitionsRequest": lambda c, r, x: c.topics.create_partitions(r, x),
    "AlterPartitionRequest": lambda c, r, x: c.isr.alter_partition(r, x),
    "ElectLeadersRequest": lambda c, r, _: c.elections.elect_leaders(r),
    "AlterPartitionReassignmentsRequest": lambda c, r, _: c.reassignments.alter(r),
    "ListPartitionReassignmentsRequest": lambda c, r, _: c.reassignments.list_ongoing(r),
    "AssignReplicasToDirsRequest": lambda c, r, _: c.directories.assign(r),
    "AlterConfigsRequest": lambda c, r, _: c.configuration.legacy_alter(r),
    "IncrementalAlterConfigsRequest": lambda c, r, _: c.configuration.incremental_alter(r),
    "UpdateFeaturesRequest": lambda c, r, x: c.features.update(r, x),
    "AllocateProducerIdsRequest": lambda c, r, _: allocate_producer_ids(c.state, r),
    "AlterClientQuotasRequest": lambda c, r, _: alter_client_quotas(c.state, r),
    "CreateAclsRequest": lambda c, r, _: create_acls(c.state, r),
    "DeleteAclsRequest": lambda c, r, _: delete_acls(c.state, r),
    "AlterUserScramCredentialsRequest": lambda c, r, _: alter_scram_credentials(c.state, r),
    "CreateDelegationTokenRequest": lambda c, r, x: c.tokens.create(r, x),
    "RenewDelegationTokenRequest": lambda c, r, x: c.tokens.renew(r, x),
    "ExpireDelegationTokenRequest": lambda c, r, x: c.tokens.expire(r, x),
}
