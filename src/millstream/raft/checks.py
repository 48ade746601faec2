"""The checks that several requests share, and what becomes of every answer.

A check that fails raises the error whose code goes into the answer. Used by the modules that hold
the rules; nothing here changes a role, except `absorb`, which takes in who leads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from millstream.errors import (
    NO_ERROR,
    FencedLeaderEpoch,
    InconsistentClusterId,
    InconsistentVoterSet,
    InvalidRequest,
    InvalidVoterKey,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
)
from millstream.raft.effects import Warn
from millstream.raft.leader_state import Leader
from millstream.raft.states import Follower
from millstream.raft.voters import Endpoint
from millstream.raft.wire_requests import METADATA_PARTITION, METADATA_TOPIC
from millstream.raft.wire_responses import NO_LEADER, LeaderFacts
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from millstream.raft.connections import InFlight
    from millstream.raft.replica import Replica

P = TypeVar("P")


class NamedEndpoint(Protocol):
    """A listener of a node, as several requests have it."""

    name: str
    host: str
    port: int


class NodeEndpoint(Protocol):
    """Where a node listens, as several answers have it."""

    node_id: int
    host: str
    port: int


def check_cluster(replica: Replica, cluster_id: str | None) -> None:
    """Refuse a node of another cluster; one that names none is taken for one of ours."""
    if cluster_id is not None and cluster_id != replica.local.cluster_id:
        raise InconsistentClusterId


def check_partition(topic: str, partition: int) -> None:
    """Refuse any partition but that of the metadata log."""
    if topic != METADATA_TOPIC or partition != METADATA_PARTITION:
        raise InvalidRequest


def only(items: Sequence[P]) -> P:
    """The one item of a list that must have one."""
    if len(items) != 1:
        raise InvalidRequest
    return items[0]


def check_sender(replica: Replica, node_id: int, epoch: int) -> None:
    """Refuse a voter that lives in the past, or is nobody."""
    if epoch < replica.epoch:
        raise FencedLeaderEpoch
    if node_id < 0:
        raise InvalidRequest


def check_leader(replica: Replica, leader_id: int, epoch: int) -> None:
    """Refuse a leader whom nobody can have elected: the only voter elects itself.

    With more voters this cannot be known: their set may have changed without us.
    """
    if leader_id == replica.local.id or not replica.voters.is_only_voter(replica.local.key):
        return
    # One who removed itself leads until that is committed, and is no voter any more.
    is_known = epoch == replica.epoch and leader_id == replica.state.leader_id
    if not is_known:
        raise InconsistentVoterSet


def check_receiver(replica: Replica, voter_id: int, directory_id: Uuid) -> None:
    """Refuse a request that was meant for another replica, such as one on a replaced disk."""
    if voter_id < 0:
        return
    is_same_directory = directory_id in (Uuid.ZERO, replica.local.key.directory_id)
    if voter_id != replica.local.id or not is_same_directory:
        raise InvalidVoterKey


def check_leadership(replica: Replica, epoch: int) -> Leader:
    """Refuse what only a leader can answer, unless we are the leader the asker believes in."""
    if epoch < replica.epoch:
        raise FencedLeaderEpoch
    if epoch > replica.epoch:
        raise UnknownLeaderEpoch
    if not isinstance(replica.state, Leader):
        raise NotLeaderOrFollower
    return replica.state


def leader_facts(replica: Replica, listener: str) -> LeaderFacts:
    """Who leads, for an answer on a listener."""
    state = replica.state
    known = state.leader_endpoints if isinstance(state, Follower | Leader) else {}
    return LeaderFacts(state.epoch, state.leader_id, known.get(listener))


def told_leader(leader_id: int, epoch: int, nodes: Iterable[NodeEndpoint]) -> LeaderFacts:
    """Who leads, out of an answer."""
    if leader_id == NO_LEADER:
        return LeaderFacts(epoch)
    endpoint = next(
        (Endpoint(node.host, node.port) for node in nodes if node.node_id == leader_id), None
    )
    return LeaderFacts(epoch, leader_id, endpoint)


def told_endpoints(listeners: Iterable[NamedEndpoint]) -> Mapping[str, Endpoint]:
    """Where a node listens, out of a request."""
    return {each.name: Endpoint(each.host, each.port) for each in listeners}


def absorb(replica: Replica, sent: InFlight, error_code: int, leader: LeaderFacts) -> bool:
    """Take in who leads; whether the answer is for this replica as it still is, and good.

    An answer from the past is dropped. One that changes our role is done with that. One with an
    error that tells us nothing new makes us leave the node alone for a moment.
    """
    if leader.epoch < replica.epoch:
        replica.connections.pause(sent.peer.id, replica.now_ms)
        return False
    before = replica.state
    endpoints = leader.endpoints(replica.local.listener)
    if not replica.learn(leader.epoch, leader.leader_id, endpoints):
        replica.emit(
            Warn(f"node {sent.peer.id} says that {leader.leader_id} leads epoch {leader.epoch}")
        )
        replica.connections.pause(sent.peer.id, replica.now_ms)
        return False
    if replica.state is not before:
        return False
    if error_code != NO_ERROR:
        replica.connections.pause(sent.peer.id, replica.now_ms)
        return False
    return True
