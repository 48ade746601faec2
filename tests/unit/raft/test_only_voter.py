"""A quorum of one knows who can have been elected."""

from __future__ import annotations

from millstream.errors import NO_ERROR, FencedLeaderEpoch, InconsistentVoterSet
from millstream.protocol.messages import BeginQuorumEpochRequest, FetchRequest
from millstream.raft import batches, wire_requests
from millstream.raft.states import Role
from millstream.types import OffsetAndEpoch
from tests.unit.raft.bench import Bench, fetched, key_of, node, voter_set
from tests.unit.raft.test_epochs import error_of


def begin(leader: int, epoch: int) -> BeginQuorumEpochRequest:
    return wire_requests.begin_quorum_epoch_request(node(leader), key_of(1), epoch)


def test_it_refuses_a_leader_that_it_did_not_vote_for() -> None:
    bench = Bench([1])
    epoch = bench.core.epoch

    answer = bench.receive(begin(9, epoch + 5))

    assert error_of(answer) == InconsistentVoterSet.code
    assert (bench.core.role, bench.core.epoch) == (Role.LEADER, epoch)


def test_a_vote_for_a_stranger_is_overtaken_at_once() -> None:
    bench = Bench([1])
    epoch = bench.core.epoch + 5
    longest = OffsetAndEpoch(epoch - 1, 1 << 40)

    bench.receive(wire_requests.vote_request(node(9), key_of(1), epoch, longest, is_pre_vote=False))

    assert (bench.core.role, bench.core.epoch) == (Role.LEADER, epoch + 1)
    assert error_of(bench.receive(begin(9, epoch))) == FencedLeaderEpoch.code


def test_it_follows_a_leader_that_removed_itself_until_that_is_committed() -> None:
    bench = Bench([1, 2])
    bench.follow(2, 4)
    alone = batches.voters_record(voter_set(1))
    ((sent, _),) = bench.sent(FetchRequest)
    bench.reply(sent, fetched(batches.control_batch(0, 4, 0, [alone]), epoch=4))
    assert bench.core.voters.ids == [1]

    answer = bench.receive(begin(2, 4))

    assert error_of(answer) == NO_ERROR
    assert bench.core.leader_id == 2
