"""The records of transactional ids are the same bytes whichever way they are made."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.coordinator.batches import encode_record
from millstream.coordinator.transaction.metadata import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    TransactionMetadata,
    TransactionState,
    from_record,
)
from millstream.protocol.messages.transaction_records import TransactionLogKey, TransactionLogValue
from millstream.protocol.records_framing import TRANSACTION_RECORDS
from millstream.types import TopicPartition

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
OTHER_IDS = st.just(NO_PRODUCER_ID) | st.integers(0, 2**63 - 1)
PARTITIONS = st.frozensets(
    st.builds(TopicPartition, st.sampled_from(["orders", "payments", "x" * 200]), INT32), max_size=6
)
STATES = st.builds(
    TransactionMetadata,
    transactional_id=st.text(max_size=20),
    producer_id=INT64,
    producer_epoch=INT16,
    previous_producer_id=OTHER_IDS,
    next_producer_id=OTHER_IDS,
    last_producer_epoch=st.just(NO_EPOCH),
    timeout_ms=INT32,
    state=st.sampled_from(TransactionState),
    partitions=PARTITIONS,
    start_ms=INT64,
    last_update_ms=INT64,
    client_version=INT16,
)


@given(STATES)
def test_a_state_is_written_as_its_messages_say(state: TransactionMetadata) -> None:
    record = state.record()

    written = encode_record(TRANSACTION_RECORDS, record)

    assert written == TRANSACTION_RECORDS.encode(record.key, record.value, record.version)
    key, value = TRANSACTION_RECORDS.decode(*written)
    assert isinstance(key, TransactionLogKey)
    assert isinstance(value, TransactionLogValue)
    if state.state is TransactionState.EMPTY:
        state = state._replace(partitions=frozenset())
    assert from_record(key, value) == state
