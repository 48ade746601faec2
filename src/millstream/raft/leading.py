"""What a leader does: order records, answer fetches, and say what is committed.

Rules 1, 4, 5 and 6 of KRaft, the leader's side. Snapshots and voters have their own modules,
`snapshots` and `membership`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from millstream.errors import (
    NO_ERROR,
    ApiError,
    InvalidRequest,
    NotController,
    RecordListTooLarge,
)
from millstream.protocol.messages import FetchResponse, KRaftVersionRecord, VotersRecord
from millstream.raft import batches, checks, wire_requests, wire_responses
from millstream.raft.effects import (
    AcceptSubmission,
    AdvanceHighWatermark,
    AppendToLog,
    RefuseSubmission,
    Respond,
    RespondWithRecords,
)
from millstream.raft.leader_state import Leader
from millstream.raft.log_outline import Diverges, Fits, NeedsSnapshot
from millstream.raft.pending import PendingBatch, PendingFetch
from millstream.raft.states import Candidate, Resigned
from millstream.raft.voters import KRAFT_VERSION_DYNAMIC, ReplicaKey
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.protocol.messages import FetchRequest
    from millstream.protocol.messages.fetch import FetchPartition
    from millstream.raft.batches import ControlMessage
    from millstream.raft.events import RequestReceived, Submit
    from millstream.raft.replica import Replica
    from millstream.types import OffsetAndEpoch

OBSERVER_SESSION_MS = 300_000
"""How long an observer that does not fetch is remembered."""

_TOPIC_IDS_SINCE = 13


class Leading:
    """The rules of leadership, for one replica."""

    __slots__ = ("_replica",)

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    # --- Beginning and end ---

    def begin(self, candidate: Candidate) -> None:
        """Take office: the first records of the epoch say who leads and, if new, who votes."""
        replica = self._replica
        local, voters = replica.local, replica.voters
        leader = Leader(
            candidate.epoch,
            local.key,
            local.endpoints,
            epoch_start_offset=replica.outline.end_offset,
            granting_voters=frozenset(candidate.tally.granting),
            check_quorum_deadline_ms=replica.now_ms + replica.config.check_quorum_timeout_ms,
            known_voters=voters.with_update(local.as_voter) or voters,
            voted_key=candidate.voted_key,
            next_offset=replica.outline.end_offset,
        )
        leader.take_voters(voters)
        replica.enter(leader)
        self.append_control(leader, self._first_records(leader))

    def _first_records(self, leader: Leader) -> list[ControlMessage]:
        replica = self._replica
        version, voters = replica.kraft_version, replica.voters
        first = batches.leader_change(leader.leader_id, voters, leader.granting_voters)
        records: list[ControlMessage] = [first]
        if version < KRAFT_VERSION_DYNAMIC:
            return records
        if replica.history.kraft_version.last_offset < 0:
            # So far only in the snapshot that `storage format` wrote, which is never sent.
            records.append(KRaftVersionRecord(version=0, kraft_version=version))
        if replica.history.voters.last_offset < 0 or leader.known_voters != voters:
            records.append(batches.voters_record(leader.known_voters))
        return records

    def resign(self, leader: Leader) -> None:
        """Give up the epoch and name successors, those with the longest log first."""
        replica = self._replica
        others = [each for each in leader.voters.values() if each.key.id != leader.leader_id]
        others.sort(key=lambda each: -(each.end_offset or 0))
        replica.enter(
            Resigned(
                leader.epoch,
                leader.leader_id,
                replica.random_election_deadline(),
                unaware={each.key.id for each in others},
                preferred_successors=[each.key for each in others],
                voted_key=leader.voted_key,
            )
        )

    def retire(self, leader: Leader) -> None:
        """The role has changed: callers that wait for the old one learn that."""
        for fetch in leader.fetches:
            self._answer_fetch(fetch)

    # --- What is due ---

    def act(self, leader: Leader) -> bool:
        """Do what the time demands; True if the role has changed."""
        replica = self._replica
        is_alone = replica.voters.is_only_voter(replica.local.key)
        if not is_alone and replica.now_ms >= leader.check_quorum_deadline_ms:
            self.resign(leader)
            return True
        if leader.batches and replica.now_ms >= leader.append_due_ms:
            self.append_pending(leader)
        self.advance_high_watermark(leader)
        self._complete_fetches(leader)
        self._send_reminders(leader)
        return False

    def _send_reminders(self, leader: Leader) -> None:
        replica = self._replica
        for voter in replica.other_voters:
            progress = leader.voters[voter.id]
            peer = replica.peer_of(voter)
            is_due = replica.now_ms >= progress.begin_due_ms
            if is_due and peer and replica.connections.is_ready(voter.id, replica.now_ms):
                progress.begin_due_ms = replica.now_ms + replica.config.begin_quorum_interval_ms
                replica.send(
                    peer,
                    wire_requests.begin_quorum_epoch_request(
                        replica.local, voter.key, leader.epoch
                    ),
                )

    def reminder_failed(self, leader: Leader, voter_id: int) -> None:
        """The voter did not get it: try again as soon as it may be sent to."""
        if voter_id in leader.voters:
            leader.voters[voter_id].begin_due_ms = self._replica.now_ms

    def deadline_ms(self, leader: Leader) -> int | None:
        """When the time will demand something."""
        replica = self._replica
        deadlines = [fetch.deadline_ms for fetch in leader.fetches]
        if not replica.voters.is_only_voter(replica.local.key):
            deadlines.append(leader.check_quorum_deadline_ms)
        if leader.batches:
            deadlines.append(leader.append_due_ms)
        if leader.change is not None:
            deadlines.append(leader.change.deadline_ms)
        deadlines += [
            leader.voters[voter.id].begin_due_ms
            for voter in replica.other_voters
            if replica.peer_of(voter) and replica.connections.is_ready(voter.id, replica.now_ms)
        ]
        return min(deadlines, default=None)

    # --- Appending ---

    def submit(self, event: Submit) -> None:
        """Give the controller's records their offsets; they are appended when it is time."""
        replica = self._replica
        leader = replica.state
        try:
            if not isinstance(leader, Leader) or leader.epoch != event.epoch:
                raise NotController(f"this node does not lead epoch {event.epoch}")
            if not event.records:
                raise InvalidRequest("a submission needs at least one record")
            base_offset = leader.next_offset
            encoded = batches.data_batch(base_offset, leader.epoch, replica.wall_ms, event.records)
            if len(encoded) > batches.BATCH_BYTES_MAX:
                raise RecordListTooLarge(
                    f"{len(encoded)} bytes of records in one batch, at most "
                    f"{batches.BATCH_BYTES_MAX}: submit them in several"
                )
        except ApiError as error:
            replica.emit(RefuseSubmission(event.token, error))
            return
        leader.next_offset += len(event.records)
        leader.batches.append(PendingBatch(base_offset, leader.next_offset, encoded))
        replica.emit(AcceptSubmission(event.token, base_offset, leader.next_offset))

    def append_pending(self, leader: Leader) -> None:
        """Put what was submitted into the log, all in one go."""
        replica = self._replica
        if not leader.batches:
            return
        base_offset, end_offset = leader.batches[0].base_offset, leader.batches[-1].end_offset
        data = b"".join(each.encoded for each in leader.batches)
        leader.batches.clear()
        leader.append_due_ms = replica.now_ms + replica.config.append_linger_ms
        replica.outline.append(base_offset, end_offset, leader.epoch)
        replica.emit(AppendToLog(data, base_offset, end_offset))
        replica.flush()

    def append_control(self, leader: Leader, records: Sequence[ControlMessage]) -> int:
        """Append records about the quorum at once, after all that was submitted; give the end."""
        replica = self._replica
        self.append_pending(leader)
        base_offset = leader.next_offset
        leader.next_offset += len(records)
        data = batches.control_batch(base_offset, leader.epoch, replica.wall_ms, records)
        replica.outline.append(base_offset, leader.next_offset, leader.epoch)
        replica.emit(AppendToLog(data, base_offset, leader.next_offset))
        was_alone = replica.voters.is_only_voter(replica.local.key)
        for offset, record in enumerate(records, base_offset):
            if isinstance(record, KRaftVersionRecord):
                replica.history.add(offset, record.kraft_version)
            elif isinstance(record, VotersRecord):
                replica.history.add(offset, batches.voter_set(record))
        leader.take_voters(replica.voters)
        if was_alone:
            # Nobody had to fetch so far: a second voter has its time from here on.
            timeout_ms = replica.config.check_quorum_timeout_ms
            leader.check_quorum_deadline_ms = replica.now_ms + timeout_ms
        leader.known_voters = replica.voters.with_update(replica.local.as_voter) or replica.voters
        replica.flush()
        return leader.next_offset

    # --- Commitment ---

    def advance_high_watermark(self, leader: Leader) -> None:
        """Commit what a majority has, once that includes a record of our own epoch.

        What older leaders left is committed with it and never before: a majority that has an old
        record can still be overruled by a leader that does not.
        """
        replica = self._replica
        offset = leader.majority_offset(replica.outline.flushed_offset, replica.voters)
        if offset > max(leader.epoch_start_offset, replica.outline.high_watermark):
            leader.high_watermark = replica.outline.high_watermark = offset
            replica.emit(AdvanceHighWatermark(offset))
            replica.quorum.announce()

    # --- Fetches ---

    def handle_fetch(self, event: RequestReceived, request: FetchRequest) -> None:
        """A replica asks for what follows its log; it may wait for there to be something."""
        replica = self._replica
        try:
            checks.check_cluster(replica, request.cluster_id)
            asked = _metadata_partition(request, event.version)
        except ApiError as error:
            replica.emit(Respond(event.token, FetchResponse(error_code=error.code)))
            return
        told = request.replica_state
        replica_id = request.replica_id if told is None else told.replica_id
        fetch = PendingFetch(
            event.token,
            request,
            event.version,
            event.listener,
            ReplicaKey(replica_id, asked.replica_directory_id),
            asked.fetch_offset,
            asked.high_watermark,
            replica.now_ms + max(0, request.max_wait_ms),
        )
        self._receive_fetch(fetch, asked)

    def _receive_fetch(self, fetch: PendingFetch, asked: FetchPartition) -> None:
        replica = self._replica
        try:
            if (
                fetch.request.max_wait_ms < 0
                or asked.fetch_offset < 0
                or not 0 <= asked.last_fetched_epoch <= asked.current_leader_epoch
            ):
                raise InvalidRequest
            leader = checks.check_leadership(replica, asked.current_leader_epoch)
        except ApiError as error:
            facts = checks.leader_facts(replica, fetch.listener)
            response = wire_responses.fetch_response(facts, fetch.version, error.code)
            replica.emit(Respond(fetch.token, response))
            return
        check = replica.outline.check_fetch(asked.fetch_offset, asked.last_fetched_epoch)
        match check:
            case Diverges(end):
                self._redirect(fetch, leader, diverging=end)
            case NeedsSnapshot(snapshot_id):
                self._redirect(fetch, leader, snapshot_id=snapshot_id)
            case Fits():
                self._acknowledge(fetch, leader)
                self._supersede(fetch, leader)
            case _:
                assert_never(check)

    def _acknowledge(self, fetch: PendingFetch, leader: Leader) -> None:
        # A follower fetches from its own log end, so the request is its acknowledgement:
        # everything below this offset is on its disk. There is no other message for it.
        replica = self._replica
        config, voters = replica.config, replica.voters
        if fetch.replica.id < 0:
            return
        leader.forget_observers(replica.now_ms - OBSERVER_SESSION_MS)
        progress = leader.progress_of(fetch.replica, voters)
        progress.fetched(fetch.offset, replica.outline.end_offset, replica.now_ms, replica.wall_ms)
        progress.begin_due_ms = replica.now_ms + config.begin_quorum_interval_ms
        leader.saw_fetch(fetch.replica, voters, replica.now_ms + config.check_quorum_timeout_ms)

    def _supersede(self, fetch: PendingFetch, leader: Leader) -> None:
        """Let the fetch wait in place of an older one of the same replica; `act` answers it."""
        is_named = fetch.replica.id >= 0
        older = [each for each in leader.fetches if is_named and each.replica == fetch.replica]
        leader.fetches = [each for each in leader.fetches if each not in older]
        leader.fetches.append(fetch)
        for each in older:
            self._answer_fetch(each)

    def _redirect(self, fetch: PendingFetch, leader: Leader, **where: OffsetAndEpoch) -> None:
        replica = self._replica
        voters, config = replica.voters, replica.config
        leader.saw_fetch(fetch.replica, voters, replica.now_ms + config.check_quorum_timeout_ms)
        replica.emit(Respond(fetch.token, self._fetch_response(fetch, NO_ERROR, **where)))

    def _complete_fetches(self, leader: Leader) -> None:
        replica = self._replica
        high_watermark = -1 if leader.high_watermark is None else leader.high_watermark
        ready = [
            fetch
            for fetch in leader.fetches
            if fetch.offset < replica.outline.end_offset
            or fetch.known_high_watermark < high_watermark
            or fetch.deadline_ms <= replica.now_ms
        ]
        leader.fetches = [fetch for fetch in leader.fetches if fetch not in ready]
        for fetch in ready:
            self._answer_fetch(fetch)

    def _answer_fetch(self, fetch: PendingFetch) -> None:
        """Answer with what there is; if we lead no more, with who does."""
        replica = self._replica
        try:
            checks.check_leadership(replica, _only_partition(fetch.request).current_leader_epoch)
        except ApiError as error:
            replica.emit(Respond(fetch.token, self._fetch_response(fetch, error.code)))
            return
        response = self._fetch_response(fetch, NO_ERROR)
        if fetch.offset < replica.outline.end_offset:
            bytes_max = min(
                fetch.request.max_bytes, _only_partition(fetch.request).partition_max_bytes
            )
            replica.emit(RespondWithRecords(fetch.token, response, fetch.offset, bytes_max))
        else:
            replica.emit(Respond(fetch.token, response))

    def _fetch_response(
        self,
        fetch: PendingFetch,
        error_code: int,
        *,
        diverging: OffsetAndEpoch | None = None,
        snapshot_id: OffsetAndEpoch | None = None,
    ) -> FetchResponse:
        replica = self._replica
        leader = replica.state
        high_watermark = leader.high_watermark if isinstance(leader, Leader) else None
        return wire_responses.fetch_response(
            checks.leader_facts(replica, fetch.listener),
            fetch.version,
            error_code,
            high_watermark=-1 if high_watermark is None else high_watermark,
            log_start_offset=replica.outline.start_offset,
            diverging=diverging,
            snapshot_id=snapshot_id,
        )


def _metadata_partition(request: FetchRequest, version: int) -> FetchPartition:
    topic = checks.only(request.topics)
    partition = checks.only(topic.partitions)
    if version >= _TOPIC_IDS_SINCE:
        if topic.topic_id != Uuid.METADATA_TOPIC or partition.partition != 0:
            raise InvalidRequest
    else:
        checks.check_partition(topic.topic, partition.partition)
    return partition


def _only_partition(request: FetchRequest) -> FetchPartition:
    return request.topics[0].partitions[0]
