"""What must hold after every event, whatever the network, the disks and the nodes do.

The checkers keep the one true history on the side: who led which epoch, which record has which
offset and epoch, what was committed. A violation is an AssertionError that names the nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

from millstream.protocol.messages import VoteRequest, VoteResponse
from millstream.raft.leader_state import Leader
from millstream.raft.voters import ReplicaKey
from millstream.types import Uuid

if TYPE_CHECKING:
    from millstream.protocol.message import Message
    from millstream.raft.effects import ElectionState
    from millstream.records.batch import RecordBatch
    from tests.simulation.raft.node import SimNode


def digest_of(before: bytes, batch: RecordBatch) -> bytes:
    """The state of the state machine after a batch: a fingerprint of all batches so far."""
    return sha256(before + bytes(batch.view)).digest()


EMPTY_STATE = b""


@dataclass
class History:
    """The one true history, as far as it was seen."""

    leaders: dict[int, ReplicaKey] = field(default_factory=dict)
    batches: dict[tuple[int, int], tuple[bytes, int]] = field(default_factory=dict)
    """(offset, epoch) to the batch's bytes and the epoch of the batch before it."""
    votes: dict[tuple[ReplicaKey, int], ReplicaKey] = field(default_factory=dict)
    states: dict[int, bytes] = field(default_factory=lambda: {0: EMPTY_STATE})
    """Committed offset to the state of the state machine there."""
    committed: dict[int, int] = field(default_factory=dict)
    """Epoch to how far its leader has committed."""

    def check_node(self, node: SimNode) -> None:
        """After an event: one leader per epoch, and it has everything that was committed."""
        core = node.driver.core
        outline = core.outline
        if node.is_stalled:
            return  # What its disk lacks is in the driver's queue, and nobody has seen it.
        assert outline.end_offset == node.log.end_offset, f"{node}: the outline is wrong"
        assert outline.start_offset == node.log.start_offset, f"{node}: the outline is wrong"
        assert list(outline.epochs) == list(node.log.epochs()), f"{node}: the epochs are wrong"
        assert core.epoch >= node.epoch_seen, f"{node}: the epoch went back"
        assert outline.high_watermark >= node.high_watermark_seen, f"{node}: uncommitted"
        node.epoch_seen, node.high_watermark_seen = core.epoch, outline.high_watermark
        if not isinstance(core.state, Leader):
            return
        elected = self.leaders.setdefault(core.epoch, node.key)
        assert elected == node.key, f"{elected} and {node} both lead epoch {core.epoch}"
        if core.state.high_watermark is not None:
            self.committed[core.epoch] = core.state.high_watermark
        # A leader of the past may not have heard of what its successors have committed.
        older = max((end for epoch, end in self.committed.items() if epoch < core.epoch), default=0)
        assert older <= outline.end_offset, f"leader {node} lacks committed records below {older}"

    def check_append(self, node: SimNode, batch: RecordBatch, epoch_before: int) -> None:
        """Offset and epoch name one batch, and all before it: logs that share one share all."""
        place = (batch.base_offset, batch.leader_epoch)
        entry = (bytes(batch.view), epoch_before)
        known = self.batches.setdefault(place, entry)
        assert known == entry, f"{node} has another batch at {place}"

    def check_commit(self, node: SimNode, batch: RecordBatch, state: bytes) -> None:
        """What one node applies, every node applies."""
        offset = batch.next_offset
        known = self.states.setdefault(offset, state)
        assert known == state, f"{node} applied something else below {offset}"

    def check_snapshot(self, node: SimNode, offset: int, state: bytes) -> None:
        """A snapshot is the state of all records it stands for."""
        assert self.states.get(offset) == state, f"{node} loaded a wrong snapshot at {offset}"

    def check_persisted(self, node: SimNode, election: ElectionState) -> None:
        """A replica votes once in an epoch, and its epochs only grow."""
        if election.voted_key is not None:
            vote = self.votes.setdefault((node.key, election.epoch), election.voted_key)
            # A static quorum does not store directories, so only the id is comparable.
            assert vote.id == election.voted_key.id, f"{node} voted twice in {election.epoch}"

    def check_request(self, node: SimNode, request: Message) -> None:
        """A candidate has its own vote on disk before it asks for others'."""
        if isinstance(request, VoteRequest):
            asked = request.topics[0].partitions[0]
            stored = node.store.written[-1]
            assert stored.epoch == asked.replica_epoch, f"{node} asks in an epoch not stored"
            if not asked.pre_vote:
                assert _is_vote_for(node.key, stored), f"{node} asks before it voted"

    def check_response(self, node: SimNode, request: Message, response: Message) -> None:
        """A vote is on disk before it is given."""
        if not isinstance(response, VoteResponse) or not response.topics:
            return
        assert isinstance(request, VoteRequest)
        asked = request.topics[0].partitions[0]
        if response.topics[0].partitions[0].vote_granted and not asked.pre_vote:
            stored = node.store.written[-1]
            candidate = ReplicaKey(asked.replica_id, Uuid(asked.replica_directory_id))
            assert stored.epoch == asked.replica_epoch, f"{node} voted in an epoch not stored"
            assert _is_vote_for(candidate, stored), f"{node} gave a vote that is not stored"


def _is_vote_for(candidate: ReplicaKey, stored: ElectionState) -> bool:
    # The file of a static quorum knows no directories.
    return stored.voted_key in (candidate, ReplicaKey(candidate.id))
