"""Requests that only the controller decides: passed on as they are, the answer passed back.

`KafkaApis` serves them on a broker's listeners, so that a client need not know which node is the
controller: CreateTopics 2-7, DeleteTopics 1-6, CreatePartitions 0-3, ElectLeaders 0-2,
AlterPartitionReassignments 0-1, ListPartitionReassignments 0, UpdateFeatures 0-2,
UnregisterBroker 0 and DescribeQuorum 0-2. Retries and time limits are the channel's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.controller.failures import error_response
from millstream.protocol.api import ApiKey
from millstream.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from millstream.protocol.messages.elect_leaders import ElectLeadersResponse

if TYPE_CHECKING:
    from millstream.clock import Clock
    from millstream.errors import ApiError
    from millstream.protocol.message import Message
    from millstream.server.exchange import Exchange
    from millstream.server.ports import ControllerChannel

FORWARDED_BY_BROKERS: Final = (
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.UPDATE_FEATURES,
    ApiKey.UNREGISTER_BROKER,
)
"""What a broker passes on without a look at it."""


def forward(
    request: Message, exchange: Exchange, controller: ControllerChannel, clock: Clock
) -> None:
    """Let the controller answer."""

    def answered(response: Message) -> None:
        exchange.answer(_as_known_to(response, exchange.version))

    controller.submit(request, exchange.context(clock), answered)


def fail_forwarded(request: Message, error: ApiError, version: int) -> Message:
    """The answer that nothing of a request was done."""
    if isinstance(request, DescribeQuorumRequest):
        return DescribeQuorumResponse(error_code=error.code, error_message=str(error))
    return _as_known_to(error_response(request, error), version)


def _as_known_to(response: Message, version: int) -> Message:
    """ElectLeaders 0 has no room for an error of the whole; each partition has it too."""
    if isinstance(response, ElectLeadersResponse) and version == 0:
        response.error_code = 0
    return response
