"""Administration of a cluster: `Admin` blocks, `AsyncAdmin` is awaited; both do the same.

What can be done is written once, as coroutines of the I/O thread, one module per subject;
`Admin` and `AsyncAdmin` only say how to wait. Plural calls give `Outcomes`, one per item; singular
calls raise.
"""

from __future__ import annotations

from millstream.client.admin.acls import Acl, AclFilter
from millstream.client.admin.admin import Admin
from millstream.client.admin.async_admin import AsyncAdmin
from millstream.client.admin.cluster import (
    BrokerDescription,
    ClusterDescription,
    FeatureUpdate,
    QuorumDescription,
    QuorumEndpoint,
    QuorumReplica,
)
from millstream.client.admin.configs import Append, ConfigEntry, ConfigResource, Subtract
from millstream.client.admin.credentials import (
    DelegationToken,
    Principal,
    ScramCredential,
    ScramDeletion,
    ScramPassword,
)
from millstream.client.admin.group_descriptions import GroupDescription, MemberDescription
from millstream.client.admin.group_offsets import ShareOffset
from millstream.client.admin.groups import GroupListing, MemberToRemove
from millstream.client.admin.log_dirs import (
    LogDirDescription,
    ReplicaInfo,
    ReplicaLogDir,
    TopicPartitionReplica,
)
from millstream.client.admin.outcomes import Outcomes
from millstream.client.admin.partitions import END, ListedOffset, Reassignment
from millstream.client.admin.quotas import ANY_NAME, DEFAULT, QuotaEntity, QuotaFilter
from millstream.client.admin.topics import (
    CreatedTopic,
    NewTopic,
    PartitionDescription,
    TopicDescription,
    TopicListing,
)
from millstream.client.admin.transactions import (
    ProducerIdAndEpoch,
    ProducerState,
    TransactionDescription,
    TransactionListing,
)

__all__ = [
    "ANY_NAME",
    "DEFAULT",
    "END",
    "Acl",
    "AclFilter",
    "Admin",
    "Append",
    "AsyncAdmin",
    "BrokerDescription",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "CreatedTopic",
    "DelegationToken",
    "FeatureUpdate",
    "GroupDescription",
    "GroupListing",
    "ListedOffset",
    "LogDirDescription",
    "MemberDescription",
    "MemberToRemove",
    "NewTopic",
    "Outcomes",
    "PartitionDescription",
    "Principal",
    "ProducerIdAndEpoch",
    "ProducerState",
    "QuorumDescription",
    "QuorumEndpoint",
    "QuorumReplica",
    "QuotaEntity",
    "QuotaFilter",
    "Reassignment",
    "ReplicaInfo",
    "ReplicaLogDir",
    "ScramCredential",
    "ScramDeletion",
    "ScramPassword",
    "ShareOffset",
    "Subtract",
    "TopicDescription",
    "TopicListing",
    "TopicPartitionReplica",
    "TransactionDescription",
    "TransactionListing",
]
