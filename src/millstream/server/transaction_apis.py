"""The APIs of transactions, and who answers them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from millstream.protocol.api import ApiKey
from millstream.server.api_server import Handler
from millstream.server.handlers.add_offsets_to_txn import (
    fail_add_offsets_to_txn,
    handle_add_offsets_to_txn,
)
from millstream.server.handlers.add_partitions_to_txn import (
    fail_add_partitions_to_txn,
    handle_add_partitions_to_txn,
)
from millstream.server.handlers.describe_transactions import (
    fail_describe_transactions,
    handle_describe_transactions,
)
from millstream.server.handlers.end_txn import fail_end_txn, handle_end_txn
from millstream.server.handlers.init_producer_id import (
    fail_init_producer_id,
    handle_init_producer_id,
)
from millstream.server.handlers.list_transactions import (
    fail_list_transactions,
    handle_list_transactions,
)
from millstream.server.handlers.write_txn_markers import (
    fail_write_txn_markers,
    handle_write_txn_markers,
)

if TYPE_CHECKING:
    from millstream.coordinator.transaction.coordinator import TransactionCoordinator
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.server.internal_topics import InternalTopics
    from millstream.server.producer_ids import ProducerIdManager
    from millstream.server.txn_markers import MarkerWriter


def transaction_handlers(
    transactions: TransactionCoordinator,
    producer_ids: ProducerIdManager,
    markers: MarkerWriter,
    topics: InternalTopics,
    metadata: KRaftMetadataCache,
) -> dict[ApiKey, Handler]:
    """Producers' ids and epochs, and the course of their transactions."""
    return {
        ApiKey.INIT_PRODUCER_ID: Handler(
            partial(handle_init_producer_id, producer_ids=producer_ids, transactions=transactions),
            fail_init_producer_id,
        ),
        ApiKey.ADD_PARTITIONS_TO_TXN: Handler(
            partial(handle_add_partitions_to_txn, transactions=transactions, metadata=metadata),
            fail_add_partitions_to_txn,
        ),
        ApiKey.ADD_OFFSETS_TO_TXN: Handler(
            partial(handle_add_offsets_to_txn, transactions=transactions, topics=topics),
            fail_add_offsets_to_txn,
        ),
        ApiKey.END_TXN: Handler(partial(handle_end_txn, transactions=transactions), fail_end_txn),
        ApiKey.WRITE_TXN_MARKERS: Handler(
            partial(handle_write_txn_markers, writer=markers), fail_write_txn_markers
        ),
        ApiKey.DESCRIBE_TRANSACTIONS: Handler(
            partial(handle_describe_transactions, transactions=transactions),
            fail_describe_transactions,
        ),
        ApiKey.LIST_TRANSACTIONS: Handler(
            partial(handle_list_transactions, transactions=transactions), fail_list_transactions
        ),
    }
