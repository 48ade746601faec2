"""Producer ids: brokers get them in blocks, and no id is ever given twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.controller.decision import Decision
from millstream.errors import UnknownServerError
from millstream.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
from millstream.protocol.messages.config_records import ProducerIdsRecord
from millstream.types import INT64_MAX

if TYPE_CHECKING:
    from millstream.controller.replication_control import ControllerState
    from millstream.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest

BLOCK_SIZE: Final = 1000


def allocate_producer_ids(
    state: ControllerState, request: AllocateProducerIdsRequest
) -> Decision[AllocateProducerIdsResponse]:
    """The next block for a broker."""
    state.registered_broker(request.broker_id, request.broker_epoch)
    start = state.image.producer_ids.next_block_start
    if start > INT64_MAX - BLOCK_SIZE:
        raise UnknownServerError("all producer ids are used up")
    record = ProducerIdsRecord(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        next_producer_id=start + BLOCK_SIZE,
    )
    response = AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=BLOCK_SIZE)
    return Decision(response, [record])
