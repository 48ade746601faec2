"""`Admin`: administration that blocks. The operations are those of `AdminOperations`."""

from __future__ import annotations

from millstream.client.admin.all_operations import AdminOperations
from millstream.client.admin.faces import BlockingFace, blocking


class Admin(BlockingFace):
    """Administers a cluster; any thread may use it, calls wait for their end.

        with Admin("localhost:9092") as admin:
            admin.create_topic("orders", partitions=6)

    Plural calls give `Outcomes`, with a result or an error per item; singular calls raise.
    """

    create_topics = blocking(AdminOperations.create_topics)
    create_topic = blocking(AdminOperations.create_topic)
    delete_topics = blocking(AdminOperations.delete_topics)
    delete_topic = blocking(AdminOperations.delete_topic)
    list_topics = blocking(AdminOperations.list_topics)
    describe_topics = blocking(AdminOperations.describe_topics)
    create_partitions = blocking(AdminOperations.create_partitions)
