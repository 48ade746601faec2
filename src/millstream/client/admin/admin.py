"""`Admin`: administration that blocks. What it can do is written in `AdminOperations`."""

from __future__ import annotations

from millstream.client.admin.all_operations import AdminOperations
from millstream.client.admin.call_styles import BlockingApi, blocking


class Admin(BlockingApi):
    """Administers a cluster; any thread may use it, calls wait for their end.

        with Admin("localhost:9092") as admin:
            admin.create_topic("orders", partitions=6)

    Plural calls give `Outcomes`, with a result or an error per item; singular calls raise. Every
    call takes `timeout` in seconds, `default_api_timeout` if not given.
    """

    # Topics.
    create_topics = blocking(AdminOperations.create_topics)
    create_topic = blocking(AdminOperations.create_topic)
    delete_topics = blocking(AdminOperations.delete_topics)
    delete_topic = blocking(AdminOperations.delete_topic)
    list_topics = blocking(AdminOperations.list_topics)
    describe_topics = blocking(AdminOperations.describe_topics)
    create_partitions = blocking(AdminOperations.create_partitions)

    # Partitions.
    list_offsets = blocking(AdminOperations.list_offsets)
    delete_records = blocking(AdminOperations.delete_records)
    elect_leaders = blocking(AdminOperations.elect_leaders)
    alter_partition_reassignments = blocking(AdminOperations.alter_partition_reassignments)
    list_partition_reassignments = blocking(AdminOperations.list_partition_reassignments)

    # Settings.
    describe_configs = blocking(AdminOperations.describe_configs)
    incremental_alter_configs = blocking(AdminOperations.incremental_alter_configs)
    list_config_resources = blocking(AdminOperations.list_config_resources)
    list_client_metrics_resources = blocking(AdminOperations.list_client_metrics_resources)

    # The cluster.
    connect = blocking(AdminOperations.connect)
    describe_cluster = blocking(AdminOperations.describe_cluster)
    describe_features = blocking(AdminOperations.describe_features)
    update_features = blocking(AdminOperations.update_features)
    describe_quorum = blocking(AdminOperations.describe_quorum)
    add_raft_voter = blocking(AdminOperations.add_raft_voter)
    remove_raft_voter = blocking(AdminOperations.remove_raft_voter)
    unregister_broker = blocking(AdminOperations.unregister_broker)
    describe_log_dirs = blocking(AdminOperations.describe_log_dirs)
    describe_replica_log_dirs = blocking(AdminOperations.describe_replica_log_dirs)
    alter_replica_log_dirs = blocking(AdminOperations.alter_replica_log_dirs)

    # Groups.
    list_groups = blocking(AdminOperations.list_groups)
    describe_groups = blocking(AdminOperations.describe_groups)
    describe_group = blocking(AdminOperations.describe_group)
    delete_groups = blocking(AdminOperations.delete_groups)
    remove_members = blocking(AdminOperations.remove_members)
    list_group_offsets = blocking(AdminOperations.list_group_offsets)
    alter_group_offsets = blocking(AdminOperations.alter_group_offsets)
    delete_group_offsets = blocking(AdminOperations.delete_group_offsets)
    list_share_group_offsets = blocking(AdminOperations.list_share_group_offsets)
    alter_share_group_offsets = blocking(AdminOperations.alter_share_group_offsets)
    delete_share_group_offsets = blocking(AdminOperations.delete_share_group_offsets)

    # Transactions.
    list_transactions = blocking(AdminOperations.list_transactions)
    describe_transactions = blocking(AdminOperations.describe_transactions)
    describe_producers = blocking(AdminOperations.describe_producers)
    abort_transaction = blocking(AdminOperations.abort_transaction)
    fence_producers = blocking(AdminOperations.fence_producers)

    # Access.
    create_acls = blocking(AdminOperations.create_acls)
    describe_acls = blocking(AdminOperations.describe_acls)
    delete_acls = blocking(AdminOperations.delete_acls)
    describe_user_scram_credentials = blocking(AdminOperations.describe_user_scram_credentials)
    alter_user_scram_credentials = blocking(AdminOperations.alter_user_scram_credentials)
    create_delegation_token = blocking(AdminOperations.create_delegation_token)
    renew_delegation_token = blocking(AdminOperations.renew_delegation_token)
    expire_delegation_token = blocking(AdminOperations.expire_delegation_token)
    describe_delegation_tokens = blocking(AdminOperations.describe_delegation_tokens)
    describe_client_quotas = blocking(AdminOperations.describe_client_quotas)
    alter_client_quotas = blocking(AdminOperations.alter_client_quotas)
