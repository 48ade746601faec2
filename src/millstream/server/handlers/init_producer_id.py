"""InitProducerId 0-5: an id for an idempotent producer.

A transactional id needs a transaction coordinator, which there is none of yet: such a request gets
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which every client takes as final. After others, such as
COORDINATOR_NOT_AVAILABLE or UNSUPPORTED_VERSION, some of them try for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import ApiError, InvalidRequest, TransactionalIdAuthorizationFailed
from millstream.protocol.messages.init_producer_id import InitProducerIdResponse

if TYPE_CHECKING:
    from millstream.protocol.messages.init_producer_id import InitProducerIdRequest
    from millstream.server.exchange import Exchange
    from millstream.server.producer_ids import ProducerIdManager

_NO_ID: Final = -1


def handle_init_producer_id(
    request: InitProducerIdRequest, exchange: Exchange, producer_ids: ProducerIdManager
) -> None:
    """A fresh id with epoch 0, whatever id the producer had before."""
    if request.transactional_id is not None:
        if not request.transactional_id:
            raise InvalidRequest("the transactional id is empty")
        raise TransactionalIdAuthorizationFailed("this broker has no transaction coordinator")
    if (request.producer_id == _NO_ID) != (request.producer_epoch == _NO_ID):
        raise InvalidRequest("a producer id and its epoch are given together or not at all")

    def generated(found: int | ApiError) -> None:
        if isinstance(found, ApiError):
            exchange.answer(fail_init_producer_id(request, found, exchange.version))
        else:
            exchange.answer(InitProducerIdResponse(producer_id=found, producer_epoch=0))

    producer_ids.generate(generated)


def fail_init_producer_id(
    request: InitProducerIdRequest, error: ApiError, version: int
) -> InitProducerIdResponse:
    """The answer without an id."""
    return InitProducerIdResponse(error_code=error.code, producer_epoch=-1)
