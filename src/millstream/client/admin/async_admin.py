"""`AsyncAdmin`: administration to be awaited. What it can do is written in `AdminOperations`."""

from __future__ import annotations

from millstream.client.admin.all_operations import AdminOperations
from millstream.client.admin.call_styles import AwaitingApi, awaiting


class AsyncAdmin(AwaitingApi):
    """Administers a cluster from an event loop; the asyncio version of `Admin`.

        async with AsyncAdmin("localhost:9092") as admin:
            await admin.create_topic("orders", partitions=6)

    Plural calls give `Outcomes`, with a result or an error per item; singular calls raise. Every
    call takes `timeout` in seconds, `default_api_timeout` if not given.
    """

    # Topics.
    create_topics = awaiting(AdminOperations.create_topics)
    create_topic = awaiting(AdminOperations.create_topic)
    delete_topics = awaiting(AdminOperations.delete_topics)
    delete_topic = awaiting(AdminOperations.delete_topic)
    list_topics = awaiting(AdminOperations.list_topics)
    describe_topics = awaiting(AdminOperations.describe_topics)
    create_partitions = awaiting(AdminOperations.create_partitions)

    # Partitions.
    list_offsets = awaiting(AdminOperations.list_offsets)
    delete_records = awaiting(AdminOperations.delete_records)
    elect_leaders = awaiting(AdminOperations.elect_leaders)
    alter_partition_reassignments = awaiting(AdminOperations.alter_partition_reassignments)
    list_partition_reassignments = awaiting(AdminOperations.list_partition_reassignments)

    # Settings.
    describe_configs = awaiting(AdminOperations.describe_configs)
    incremental_alter_configs = awaiting(AdminOperations.incremental_alter_configs)
    list_config_resources = awaiting(AdminOperations.list_config_resources)
    list_client_metrics_resources = awaiting(AdminOperations.list_client_metrics_resources)

    # The cluster.
    connect = awaiting(AdminOperations.connect)
    describe_cluster = awaiting(AdminOperations.describe_cluster)
    describe_features = awaiting(AdminOperations.describe_features)
    update_features = awaiting(AdminOperations.update_features)
    describe_quorum = awaiting(AdminOperations.describe_quorum)
    add_raft_voter = awaiting(AdminOperations.add_raft_voter)
    remove_raft_voter = awaiting(AdminOperations.remove_raft_voter)
    unregister_broker = awaiting(AdminOperations.unregister_broker)
    describe_log_dirs = awaiting(AdminOperations.describe_log_dirs)
    describe_replica_log_dirs = awaiting(AdminOperations.describe_replica_log_dirs)
    alter_replica_log_dirs = awaiting(AdminOperations.alter_replica_log_dirs)

    # Groups.
    list_groups = awaiting(AdminOperations.list_groups)
    describe_groups = awaiting(AdminOperations.describe_groups)
    describe_group = awaiting(AdminOperations.describe_group)
    delete_groups = awaiting(AdminOperations.delete_groups)
    remove_members = awaiting(AdminOperations.remove_members)
    list_group_offsets = awaiting(AdminOperations.list_group_offsets)
    alter_group_offsets = awaiting(AdminOperations.alter_group_offsets)
    delete_group_offsets = awaiting(AdminOperations.delete_group_offsets)
    list_share_group_offsets = awaiting(AdminOperations.list_share_group_offsets)
    alter_share_group_offsets = awaiting(AdminOperations.alter_share_group_offsets)
    delete_share_group_offsets = awaiting(AdminOperations.delete_share_group_offsets)

    # Transactions.
    list_transactions = awaiting(AdminOperations.list_transactions)
    describe_transactions = awaiting(AdminOperations.describe_transactions)
    describe_producers = awaiting(AdminOperations.describe_producers)
    abort_transaction = awaiting(AdminOperations.abort_transaction)
    fence_producers = awaiting(AdminOperations.fence_producers)

    # Access.
    create_acls = awaiting(AdminOperations.create_acls)
    describe_acls = awaiting(AdminOperations.describe_acls)
    delete_acls = awaiting(AdminOperations.delete_acls)
    describe_user_scram_credentials = awaiting(AdminOperations.describe_user_scram_credentials)
    alter_user_scram_credentials = awaiting(AdminOperations.alter_user_scram_credentials)
    create_delegation_token = awaiting(AdminOperations.create_delegation_token)
    renew_delegation_token = awaiting(AdminOperations.renew_delegation_token)
    expire_delegation_token = awaiting(AdminOperations.expire_delegation_token)
    describe_delegation_tokens = awaiting(AdminOperations.describe_delegation_tokens)
    describe_client_quotas = awaiting(AdminOperations.describe_client_quotas)
    alter_client_quotas = awaiting(AdminOperations.alter_client_quotas)
