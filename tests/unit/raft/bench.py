"""One core on a bench: step it, see what it decides, answer in the others' names.

The core is node 1 of the voters 1, 2 and 3 unless told otherwise. Flushes are done at once unless
`flushes` is off. Nothing here decides anything.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, TypeVar

from millstream.protocol.messages import VoteRequest
from millstream.raft import batches, wire_requests, wire_responses
from millstream.raft.config import QuorumConfig
from millstream.raft.core import RaftCore, RecoveredState
from millstream.raft.effects import (
    ElectionState,
    FlushLog,
    Respond,
    RespondWithRecords,
    RespondWithSnapshot,
    SendRequest,
)
from millstream.raft.events import (
    LogFlushed,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    Tick,
)
from millstream.raft.leader_state import Leader
from millstream.raft.log_outline import LogOutline
from millstream.raft.replica import LocalNode, QuorumHistory
from millstream.raft.states import Follower
from millstream.raft.voters import (
    LOCAL_SUPPORTED_VERSIONS,
    Endpoint,
    ReplicaKey,
    Voter,
    VoterSet,
)
from millstream.raft.wire_responses import LeaderFacts
from millstream.types import OffsetAndEpoch, Uuid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.protocol.message import Message
    from millstream.protocol.messages import FetchResponse
    from millstream.raft.effects import Effect
    from millstream.raft.events import Event

E = TypeVar("E")
M = TypeVar("M", bound="Message")

LISTENER = "CONTROLLER"
CLUSTER = "cluster-of-the-test"


def directory_of(node_id: int) -> Uuid:
    """The directory id that a node has in these tests."""
    return Uuid(bytes([node_id]) * 16)


def key_of(node_id: int) -> ReplicaKey:
    """The replica key that a node has in these tests."""
    return ReplicaKey(node_id, directory_of(node_id))


def endpoint_of(node_id: int) -> Endpoint:
    """Where a node listens in these tests."""
    return Endpoint(f"host{node_id}", 9_000 + node_id)


def node(node_id: int, *, is_controller: bool = True) -> LocalNode:
    """A node, seen from inside."""
    endpoints = {LISTENER: endpoint_of(node_id)} if is_controller else {}
    return LocalNode(key_of(node_id), CLUSTER, LISTENER, endpoints, is_controller=is_controller)


def voter(node_id: int) -> Voter:
    """A node as a voter."""
    return Voter(key_of(node_id), {LISTENER: endpoint_of(node_id)}, LOCAL_SUPPORTED_VERSIONS)


def voter_set(*node_ids: int) -> VoterSet:
    """Nodes as the set of voters."""
    return VoterSet(voter(node_id) for node_id in node_ids)


def static_config(*node_ids: int) -> QuorumConfig:
    """The configuration of a static quorum."""
    return QuorumConfig(voters=tuple(f"{n}@{endpoint_of(n)}" for n in node_ids))


def outline_of(*epochs: int, high_watermark: int = 0) -> LogOutline:
    """A log with one record per argument, of that epoch."""
    outline = LogOutline()
    for offset, epoch in enumerate(epochs):
        outline.append(offset, offset + 1, epoch)
    outline.flushed_offset = outline.end_offset
    outline.high_watermark = high_watermark
    return outline


class Bench:
    """A core, the time, and the last decisions."""

    def __init__(
        self,
        voters: Sequence[int] = (1, 2, 3),
        *,
        log: Sequence[int] = (),
        high_watermark: int = 0,
        stored: ElectionState | None = None,
        outline: LogOutline | None = None,
        kraft_version: int = 1,
        config: QuorumConfig | None = None,
        local: LocalNode | None = None,
        starts: bool = True,
    ) -> None:
        is_static = kraft_version == 0
        self.config = config or (static_config(*voters) if is_static else QuorumConfig())
        self.now_ms = 1_000
        self.wall_ms = 1_700_000_000_000
        self.flushes = True
        self.effects: list[Effect] = []
        self._tokens = 0
        voter_list = voter_set(*voters)
        if is_static:
            voter_list = VoterSet(
                Voter(ReplicaKey(each.id), each.endpoints) for each in voter_set(*voters)
            )
        self.core = RaftCore(
            local or node(1),
            self.config,
            Random(1),
            RecoveredState(
                outline or outline_of(*log, high_watermark=high_watermark),
                QuorumHistory.starting_from(voter_list, kraft_version),
                stored,
            ),
        )
        if starts:
            self.start()

    # --- Stepping ---

    def start(self) -> list[Effect]:
        return self._take(self.core.start(self.now_ms, self.wall_ms))

    def step(self, event: Event) -> list[Effect]:
        return self._take(self.core.step(event, self.now_ms, self.wall_ms))

    def _take(self, effects: list[Effect]) -> list[Effect]:
        self.effects = list(effects)
        for effect in effects:
            if isinstance(effect, FlushLog) and self.flushes:
                flushed = LogFlushed(effect.flush_id)
                before = self.effects
                self.effects = before + self.step(flushed)
        return self.effects

    def wait(self, duration_ms: int) -> list[Effect]:
        self.now_ms += duration_ms
        self.wall_ms += duration_ms
        return self.step(Tick())

    def wait_until_due(self) -> list[Effect]:
        due_ms = self.core.next_deadline_ms()
        assert due_ms is not None
        return self.wait(max(0, due_ms - self.now_ms))

    # --- Requests of others ---

    def receive(self, request: Message, version: int | None = None) -> Message | None:
        """Let a request come in; the answer, if there is one already."""
        self._tokens += 1
        highest = type(request).VERSIONS.highest if version is None else version
        self.step(RequestReceived(self._tokens, request, highest, LISTENER))
        return self.answer_to(self._tokens)

    @property
    def last_token(self) -> int:
        return self._tokens

    def answer_to(self, token: int) -> Message | None:
        for effect in self.effects:
            answers = Respond | RespondWithRecords | RespondWithSnapshot
            if isinstance(effect, answers) and effect.token == token:
                return effect.message
        return None

    # --- Our requests ---

    def sent(self, kind: type[M]) -> list[tuple[SendRequest, M]]:
        """The requests of a kind in the last decisions."""
        requests = self.of(SendRequest)
        return [(each, each.message) for each in requests if isinstance(each.message, kind)]

    def of(self, kind: type[E]) -> list[E]:
        """The decisions of a kind among the last."""
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def reply(self, sent: SendRequest, response: Message) -> list[Effect]:
        return self.step(ResponseReceived(sent.request_id, response))

    def fail(self, sent: SendRequest) -> list[Effect]:
        return self.step(RequestFailed(sent.request_id))

    # --- Short ways into a role ---

    def vote(
        self,
        *,
        by: int = 2,
        epoch: int = 1,
        last_epoch: int = 0,
        last_offset: int = 0,
        is_pre_vote: bool = False,
    ) -> VoteRequest:
        """A request for our vote."""
        return wire_requests.vote_request(
            node(by),
            self.core._replica.local.key,
            epoch,
            OffsetAndEpoch(last_epoch, last_offset),
            is_pre_vote=is_pre_vote,
        )

    def grant_all(self) -> None:
        """The voters that are asked for their votes give them, until that has an effect."""
        state = self.core.state
        for sent, request in self.sent(VoteRequest):
            epoch = request.topics[0].partitions[0].replica_epoch
            facts = LeaderFacts(epoch)
            self.reply(sent, wire_responses.vote_response(facts, 2, is_granted=True))
            if self.core.state is not state:
                return

    def lead(self) -> Leader:
        """Stand for election and win it."""
        state = self.core.state
        if isinstance(state, Follower):
            state.fetch_deadline_ms = self.now_ms
        elif not isinstance(state, Leader):
            state.election_deadline_ms = self.now_ms
        self.wait(0)
        self.grant_all()
        self.grant_all()
        assert isinstance(self.core.state, Leader)
        return self.core.state

    def follow(self, leader_id: int = 2, epoch: int = 1) -> Follower:
        """Hear from a leader."""
        local = self.core._replica.local.key
        request = wire_requests.begin_quorum_epoch_request(node(leader_id), local, epoch)
        self.receive(request)
        state = self.core.state
        assert isinstance(state, Follower)
        return state

    def fetch(
        self,
        by: int,
        *,
        offset: int | None = None,
        epoch: int | None = None,
        current: int | None = None,
        high_watermark: int = 0,
    ) -> Message | None:
        """A replica fetches from us; by default from our very end."""
        outline = self.core.outline
        end = OffsetAndEpoch(
            outline.last_epoch if epoch is None else epoch,
            outline.end_offset if offset is None else offset,
        )
        request = wire_requests.fetch_request(
            node(by), self.core.epoch if current is None else current, end, high_watermark
        )
        return self.receive(request)

    def replicate(self, *voters: int) -> None:
        """Voters fetch from our end, so that everything is committed."""
        for voter_id in voters:
            self.fetch(voter_id)


def fetched(
    records: bytes = b"",
    *,
    leader_id: int = 2,
    epoch: int = 1,
    error_code: int = 0,
    high_watermark: int = 0,
    diverging: OffsetAndEpoch | None = None,
    snapshot_id: OffsetAndEpoch | None = None,
) -> FetchResponse:
    """A leader's answer to our fetch."""
    response = wire_responses.fetch_response(
        LeaderFacts(epoch, leader_id, endpoint_of(leader_id)),
        18,
        error_code,
        high_watermark=high_watermark,
        diverging=diverging,
        snapshot_id=snapshot_id,
    )
    response.responses[0].partitions[0].records = records
    return response


def records_at(offset: int, epoch: int, *values: bytes) -> bytes:
    """A batch of the controller's records."""
    return batches.data_batch(offset, epoch, 0, values or (b"x",))
