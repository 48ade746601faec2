"""The driver performs decisions in order and tells the listener between steps."""

from __future__ import annotations

import logging
from random import Random
from typing import TYPE_CHECKING

import pytest

from millstream.clock import ManualClock
from millstream.errors import InvalidArgument, NotController
from millstream.protocol.messages import (
    DescribeQuorumRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    VoteRequest,
    VoteResponse,
)
from millstream.raft import ports as ports_of_raft
from millstream.raft import wire_requests, wire_responses
from millstream.raft.driver import RaftDriver
from millstream.raft.states import Role
from millstream.raft.wire_responses import LeaderFacts
from millstream.types import OffsetAndEpoch
from tests.simulation.raft.memory import MemoryLog, MemoryStore
from tests.simulation.raft.node import snapshot_bytes
from tests.unit.raft.bench import LISTENER, fetched, key_of, node, records_at, static_config

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.protocol.message import Message
    from millstream.raft.effects import ElectionState, Peer
    from millstream.raft.ports import LogStalled
    from millstream.types import ReadableBuffer


class RecordingStore(MemoryStore):
    """A store that writes down when it is used."""

    def __init__(self, calls: list[str]) -> None:
        super().__init__()
        self._calls = calls

    def write(
        self, election: ElectionState, kraft_version: int, voter_ids: tuple[int, ...]
    ) -> None:
        self._calls.append(f"persist {election.epoch}")
        super().write(election, kraft_version, voter_ids)


class Recorder(MemoryLog):
    """All other ports in one, writing down in which order they are used."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.store = RecordingStore(self.calls)
        self.requests: dict[int, Message] = {}
        self.deadline_ms: int | None = None
        self.on_leadership: Callable[[int | None, int], None] = lambda leader_id, epoch: None

    def append(self, batches: ReadableBuffer) -> None:
        self.calls.append("append")
        super().append(batches)

    def flush(
        self, done: Callable[[], None], stalled: Callable[[LogStalled], None] = lambda _: None
    ) -> None:
        self.calls.append("flush")
        super().flush(done, stalled)

    def set(self, deadline_ms: int | None) -> None:
        self.deadline_ms = deadline_ms

    def send(self, request_id: int, peer: Peer, message: Message) -> None:
        self.calls.append(f"send {type(message).__name__} to {peer.id}")
        self.requests[request_id] = message

    def committed(self, high_watermark: int) -> None:
        self.calls.append(f"committed {high_watermark}")

    def snapshot_installed(self, snapshot_id: OffsetAndEpoch) -> None:
        self.calls.append(f"installed {snapshot_id.offset}")

    def leadership_changed(self, leader_id: int | None, epoch: int) -> None:
        self.calls.append(f"leader {leader_id} of {epoch}")
        self.on_leadership(leader_id, epoch)

    def stalled(self) -> None:
        self.calls.append("stalled")

    def shutdown_completed(self) -> None:
        self.calls.append("shut down")

    def last_request(self, kind: type[Message]) -> int:
        return max(n for n, message in self.requests.items() if isinstance(message, kind))


def make(ports: Recorder, *voters: int, clock: ManualClock | None = None) -> RaftDriver:
    return RaftDriver(
        node(1),
        static_config(*voters),
        random=Random(1),
        clock=clock or ManualClock(),
        log=ports,
        store=ports.store,
        network=ports,
        alarm=ports,
        listener=ports,
    )


def test_a_quorum_of_one_leads_when_start_returns() -> None:
    ports = Recorder()

    make(ports, 1).start()

    assert ports.calls == [
        "persist 0",
        "persist 1",
        "persist 1",
        "append",
        "flush",
        "leader None of 0",
        "leader None of 1",
        "committed 1",
        "leader 1 of 1",
    ]
    assert ports.deadline_ms is None


def test_submitted_records_are_committed_when_submit_returns_if_the_disk_is_at_once() -> None:
    ports = Recorder()
    driver = make(ports, 1)
    driver.start()
    ports.calls.clear()

    assert driver.submit(1, [b"a", b"b"]) == (1, 3)

    assert ports.calls == ["append", "flush", "committed 3"]
    assert ports.high_watermark == 3


def test_a_submission_that_is_refused_raises_the_reason() -> None:
    ports = Recorder()
    driver = make(ports, 1)
    driver.start()

    with pytest.raises(NotController):
        driver.submit(9, [b"a"])


def test_the_listener_may_submit_while_it_is_told_that_it_leads() -> None:
    ports = Recorder()
    driver = make(ports, 1)
    offsets: list[tuple[int, int]] = []

    def write_at_once(leader_id: int | None, epoch: int) -> None:
        if leader_id == 1:
            offsets.append(driver.submit(epoch, [b"first"]))
            assert ports.calls[-1] != "committed 2", "told in order, not in between"

    ports.on_leadership = write_at_once
    driver.start()

    assert offsets == [(1, 2)]
    assert ports.calls[-1] == "committed 2"


def test_a_listener_that_fails_does_not_stop_the_driver_for_good() -> None:
    ports = Recorder()
    driver = make(ports, 1)

    def fail(leader_id: int | None, epoch: int) -> None:
        raise RuntimeError("listener")

    ports.on_leadership = fail
    with pytest.raises(RuntimeError):
        driver.start()
    ports.on_leadership = lambda leader_id, epoch: None

    driver.tick()

    assert ports.calls[-1] == "leader 1 of 1"


def test_the_vote_is_on_disk_before_it_is_on_the_wire() -> None:
    ports = Recorder()
    clock = ManualClock()
    driver = make(ports, 1, 2, 3, clock=clock)
    driver.start()
    request = wire_requests.vote_request(
        node(2), key_of(1), 3, OffsetAndEpoch(0, 0), is_pre_vote=False
    )

    def respond(response: Message) -> None:
        assert isinstance(response, VoteResponse)
        ports.calls.append(f"granted {response.topics[0].partitions[0].vote_granted}")

    ports.calls.clear()
    driver.handle(request, 2, LISTENER, respond)

    assert ports.calls[:3] == ["persist 3", "persist 3", "granted True"]


def test_answers_failures_and_the_alarm_reach_the_core() -> None:
    ports = Recorder()
    clock = ManualClock()
    driver = make(ports, 1, 2, clock=clock)
    driver.start()
    driver.request_failed(ports.last_request(FetchRequest))

    clock.advance(2_000)
    driver.tick()
    assert driver.core.role is Role.PROSPECTIVE
    for epoch in (0, 1):
        response = wire_responses.vote_response(LeaderFacts(epoch), 2, is_granted=True)
        driver.response_received(ports.last_request(VoteRequest), response)

    assert driver.core.leader_id == 1
    assert ports.deadline_ms is not None


def leading(ports: Recorder) -> RaftDriver:
    driver = make(ports, 1)
    driver.start()
    driver.submit(1, [b"a"])
    return driver


def test_a_fetch_is_answered_with_records_of_the_log() -> None:
    ports = Recorder()
    driver = leading(ports)
    answers: list[Message] = []

    request = wire_requests.fetch_request(node(7), 1, OffsetAndEpoch(0, 0), 0)
    driver.handle(request, 18, LISTENER, answers.append)

    (response,) = answers
    assert isinstance(response, FetchResponse)
    records = response.responses[0].partitions[0].records
    assert records is not None
    assert bytes(records) == ports.read(0, 1 << 20)


def test_a_snapshot_is_made_served_and_takes_the_place_of_records() -> None:
    ports = Recorder()
    driver = leading(ports)
    snapshot_id = OffsetAndEpoch(1, 2)
    data = snapshot_bytes(2, 1, 0, driver.core.voters, b"state")
    ports.complete[snapshot_id] = data
    answers: list[Message] = []

    driver.snapshot_created(snapshot_id, len(data))
    driver.prune_log(snapshot_id)
    request = wire_requests.fetch_snapshot_request(node(7), 1, snapshot_id, 10)
    driver.handle(request, 1, LISTENER, answers.append)

    assert ports.batches == []
    (response,) = answers
    assert isinstance(response, FetchSnapshotResponse)
    piece = response.topics[0].partitions[0].unaligned_records
    assert piece is not None
    assert bytes(piece) == data[10:]


def test_a_follower_appends_truncates_and_installs() -> None:
    ports = Recorder()
    driver = make(ports, 1, 2)
    driver.start()
    begin = wire_requests.begin_quorum_epoch_request(node(2), key_of(1), 1)
    driver.handle(begin, 1, LISTENER, lambda response: None)
    driver.response_received(ports.last_request(FetchRequest), fetched(records_at(0, 1)))
    diverging = fetched(diverging=OffsetAndEpoch(0, 0))
    driver.response_received(ports.last_request(FetchRequest), diverging)
    assert ports.end_offset == 0

    snapshot_id = OffsetAndEpoch(1, 5)
    offer = fetched(snapshot_id=snapshot_id)
    driver.response_received(ports.last_request(FetchRequest), offer)
    data = snapshot_bytes(5, 1, 0, driver.core.voters, b"state")
    piece = wire_responses.fetch_snapshot_response(
        LeaderFacts(1, 2), 1, snapshot_id=snapshot_id, size=len(data)
    )
    piece.topics[0].partitions[0].unaligned_records = data
    driver.response_received(ports.last_request(FetchSnapshotRequest), piece)

    assert ports.start_offset == 5
    assert "installed 5" in ports.calls
    assert driver.core.outline.end_offset == 5
    assert ports.calls[-2].startswith("send FetchRequest")


def test_upgrade_resignation_and_shutdown_go_through() -> None:
    ports = Recorder()
    driver = leading(ports)

    assert driver.next_offset == 2
    assert driver.upgrade_kraft_version(1, 1) == (2, 4)
    driver.resign(1)
    assert driver.core.role is Role.RESIGNED
    assert driver.next_offset == 4
    driver.shut_down(100)

    assert ports.calls[-1] == "shut down"
    with pytest.raises(InvalidArgument, match="shut down"):
        driver.submit(1, [b"late"])


def test_what_should_not_happen_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    ports = Recorder()
    driver = make(ports, 1, 2)
    driver.start()

    with caplog.at_level(logging.WARNING, logger="millstream.raft"):
        driver.response_received(ports.last_request(FetchRequest), FetchResponse())

    assert "makes no sense" in caplog.text


def test_the_ports_in_memory_are_what_the_driver_asks_for() -> None:
    log: ports_of_raft.ReplicatedLog = MemoryLog()
    store: ports_of_raft.QuorumStateStore = MemoryStore()
    others: list[type] = [
        ports_of_raft.NetworkChannel,
        ports_of_raft.Alarm,
        ports_of_raft.RaftListener,
    ]

    for port, kinds in ((log, [ports_of_raft.ReplicatedLog]), (Recorder(), others)):
        for kind in kinds:
            asked = {name for name in vars(kind) if not name.startswith("_")}
            assert asked <= set(dir(port))
    assert store.read() is None


def test_tools_are_answered_too() -> None:
    ports = Recorder()
    driver = leading(ports)
    answers: list[Message] = []

    driver.handle(DescribeQuorumRequest(), 2, LISTENER, answers.append)

    assert len(answers) == 1
