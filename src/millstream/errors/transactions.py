"""Idempotent producers and transactions.

One class per wire code, in the order of the codes. No behaviour lives here.
"""

from __future__ import annotations

from millstream.errors.base import ApiError, RetriableError
from millstream.errors.client import FatalProducerError

__all__ = [
    "ConcurrentTransactions",
    "DuplicateSequenceNumber",
    "InvalidProducerEpoch",
    "InvalidProducerIdMapping",
    "InvalidTransactionTimeout",
    "InvalidTxnState",
    "OutOfOrderSequenceNumber",
    "ProducerFenced",
    "TransactionAbortable",
    "TransactionCoordinatorFenced",
    "TransactionalIdAuthorizationFailed",
    "TransactionalIdNotFound",
    "UnknownProducerId",
]


class OutOfOrderSequenceNumber(ApiError):
    """The batch does not follow the producer's last one; a batch in between is missing."""

    code, wire_name = 45, "OUT_OF_ORDER_SEQUENCE_NUMBER"


class DuplicateSequenceNumber(ApiError):
    """The batch was appended before."""

    code, wire_name = 46, "DUPLICATE_SEQUENCE_NUMBER"


class InvalidProducerEpoch(ApiError):
    """A newer instance of this producer has taken over."""

    code, wire_name = 47, "INVALID_PRODUCER_EPOCH"


class InvalidTxnState(ApiError):
    """The transaction is not in a state that allows this."""

    code, wire_name = 48, "INVALID_TXN_STATE"


class InvalidProducerIdMapping(ApiError):
    """The producer id does not belong to that transactional id."""

    code, wire_name = 49, "INVALID_PRODUCER_ID_MAPPING"


class InvalidTransactionTimeout(ApiError):
    """The transaction timeout is not positive or above `transaction.max.timeout.ms`."""

    code, wire_name = 50, "INVALID_TRANSACTION_TIMEOUT"


class ConcurrentTransactions(RetriableError):
    """The previous transaction of this producer is still being finished; ask again."""

    code, wire_name = 51, "CONCURRENT_TRANSACTIONS"


class TransactionCoordinatorFenced(ApiError):
    """A newer coordinator has taken over this transaction."""

    code, wire_name = 52, "TRANSACTION_COORDINATOR_FENCED"


class TransactionalIdAuthorizationFailed(ApiError):
    """The principal may not use that transactional id."""

    code, wire_name = 53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


class UnknownProducerId(ApiError):
    """The partition remembers nothing of this producer."""

    code, wire_name = 59, "UNKNOWN_PRODUCER_ID"


class ProducerFenced(ApiError, FatalProducerError):
    """A newer producer with the same transactional id has taken over."""

    code, wire_name = 90, "PRODUCER_FENCED"


class TransactionalIdNotFound(ApiError):
    """There is no such transactional id."""

    code, wire_name = 105, "TRANSACTIONAL_ID_NOT_FOUND"


class TransactionAbortable(ApiError):
    """The transaction cannot go on and must be aborted; the producer stays usable."""

    code, wire_name = 120, "TRANSACTION_ABORTABLE"
