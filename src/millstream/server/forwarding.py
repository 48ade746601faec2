"""Requests that only the controller decides: passed on as they are, the answer passed back.

`KafkaApis` serves them on a broker's listeners, so that a client need not know which node is the
controller: CreateTopics 2-7, DeleteTopics 1-6, CreatePartitions 0-3, ElectLeaders 0-2,
AlterPartitionReassignments 0-1, ListPartitionReassignments 0, UpdateFeatures 0-2,
UnregisterBroker 0, DescribeQuorum 0-2, AddRaftVoter 0-1 and RemoveRaftVoter 0. Retries and time
limits are the channel's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.controller.failures import error_response
from millstream.errors import NotController, NotLeaderOrFollower
from millstream.protocol.api import API_BY_KEY, ApiKey
from millstream.protocol.error_codes import error_codes
from millstream.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from millstream.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from millstream.protocol.messages.elect_leaders import ElectLeadersResponse
from millstream.protocol.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from millstream.protocol.notation import NO_VERSIONS, VersionRange

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
)
"""What a broker passes on without a look at it."""

_LIMITED_BY_CONTROLLER: Final = frozenset(
    {*FORWARDED_BY_BROKERS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS}
)


def limited_by_controller(
    own: Mapping[ApiKey, VersionRange], theirs: Mapping[int, VersionRange]
) -> Mapping[ApiKey, VersionRange]:
    """What a broker may offer: of what it passes on, only what the active controller takes too.

    Its own versions while those of the controller are not known.
    """
    if not theirs:
        return own
    limited = {}
    for api, versions in own.items():
        if api in _LIMITED_BY_CONTROLLER:
            offered = theirs.get(int(api), NO_VERSIONS)
            versions = VersionRange(
                max(versions.lowest, offered.lowest), min(versions.highest, offered.highest)
            )
        if versions.lowest <= versions.highest:
            limited[api] = versions
    return limited


_ANSWERS_OF_RAFT: Final[dict[type[Message], Callable[..., Message]]] = {
    AddRaftVoterRequest: AddRaftVoterResponse,
    DescribeQuorumRequest: DescribeQuorumResponse,
    RemoveRaftVoterRequest: RemoveRaftVoterResponse,
}
RAFT_REQUESTS: Final = frozenset(_ANSWERS_OF_RAFT)
"""Those that the leader of the quorum answers: raft itself, not the controller."""


def forward(
    request: Message, exchange: Exchange, controller: ControllerChannel, clock: Clock
) -> None:
    """Let the controller answer."""

    def answered(response: Message) -> None:
        exchange.answer(_as_known_to(response, exchange.version))

    controller.submit(request, exchange.context(clock), answered)


def fail_forwarded(request: Message, error: ApiError, version: int) -> Message:
    """The answer that nothing of a request was done."""
    of_raft = _ANSWERS_OF_RAFT.get(type(request))
    if of_raft is not None:
        return of_raft(error_code=error.code, error_message=str(error))
    return _as_known_to(error_response(request, error), version)


def says_not_controller(response: Message) -> bool:
    """Whether a node that is not, or no longer, the active controller has given this answer."""
    codes = {NotController.code}
    if API_BY_KEY[response.KEY].response in _ANSWERS_OF_RAFT.values():
        codes.add(NotLeaderOrFollower.code)
    return any(each in codes for each in error_codes(response))


def _as_known_to(response: Message, version: int) -> Message:
    """ElectLeaders 0 has no room for an error of the whole; each partition has it too."""
    if isinstance(response, ElectLeadersResponse) and version == 0:
        response.error_code = 0
    return response
