"""Everything that an admin can do, in one class."""

from __future__ import annotations

from millstream.client.admin.acls import AclOperations
from millstream.client.admin.cluster import ClusterOperations
from millstream.client.admin.configs import ConfigOperations
from millstream.client.admin.credentials import CredentialOperations
from millstream.client.admin.group_offsets import GroupOffsetOperations
from millstream.client.admin.groups import GroupOperations
from millstream.client.admin.log_dirs import LogDirOperations
from millstream.client.admin.partitions import PartitionOperations
from millstream.client.admin.quotas import QuotaOperations
from millstream.client.admin.topics import TopicOperations
from millstream.client.admin.transactions import TransactionOperations


class AdminOperations(
    TopicOperations,
    PartitionOperations,
    ConfigOperations,
    ClusterOperations,
    LogDirOperations,
    GroupOperations,
    GroupOffsetOperations,
    TransactionOperations,
    AclOperations,
    CredentialOperations,
    QuotaOperations,
):
    """All subjects together."""
