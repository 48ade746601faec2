"""The metadata log on disk: what raft's driver and a restart rely on."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from millstream.clock import ManualClock
from millstream.errors import KafkaStorageError
from millstream.metadata.metadata_log import METADATA_PARTITION, MetadataLog
from millstream.metadata.metadata_log_config import MetadataLogConfig
from millstream.metadata.quorum_state_store import FileQuorumStateStore
from millstream.metadata.snapshot_files import snapshot_file_name
from millstream.raft import batches
from millstream.raft.config import QuorumConfig
from millstream.raft.driver import RaftDriver
from millstream.raft.effects import ElectionState, Peer
from millstream.raft.replica import LocalNode
from millstream.raft.states import Role
from millstream.raft.voters import ReplicaKey, Voter, VoterSet
from millstream.storage.disk import DiskFileSystem
from millstream.storage.manager.meta_properties import read_partition_metadata
from millstream.testing.sim_filesystem import SimFileSystem
from millstream.types import OffsetAndEpoch, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.protocol.message import Message
    from millstream.storage.filesystem import FileSystem


class Shelf:
    """A directory in which a metadata log is opened, closed and opened again."""

    def __init__(self, filesystem: FileSystem, root: str) -> None:
        self.filesystem = filesystem
        self.root = root
        self.clock = ManualClock()
        self.failures: list[Exception] = []
        self.delayed: list[Callable[[], None]] = []
        self.is_delaying = False
        self.config = MetadataLogConfig()

    @property
    def directory(self) -> str:
        return f"{self.root}/{METADATA_PARTITION}"

    def open(self) -> MetadataLog:
        return MetadataLog.open(
            self.filesystem,
            self.root,
            self.config,
            clock=self.clock,
            sync=self._sync,
            on_failure=self.failures.append,
        )

    def _sync(self, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        def run() -> None:
            try:
                work()
            except OSError as error:
                done(error)
            else:
                done(None)

        if self.is_delaying:
            self.delayed.append(run)
        else:
            run()


@pytest.fixture(params=[DiskFileSystem, SimFileSystem])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Shelf:
    if request.param is DiskFileSystem:
        return Shelf(DiskFileSystem(), str(tmp_path))
    return Shelf(SimFileSystem(Random(1)), "/data")


def batch(log: MetadataLog, *values: bytes, epoch: int = 1) -> bytes:
    return batches.data_batch(log.end_offset, epoch, 0, values)


def records(log: MetadataLog) -> list[bytes]:
    found: list[bytes] = []
    offset = log.start_offset
    while offset < log.end_offset:
        for each in batches.walk_batches(log.read(offset, 1 << 20)):
            found += [record.value or b"" for record in each.records() if record.offset >= offset]
            offset = each.next_offset
    return found


def take_snapshot(log: MetadataLog, snapshot_id: OffsetAndEpoch, data: bytes = b"state") -> None:
    log.note_snapshot(snapshot_id, log.snapshot_job(snapshot_id, [data])())


def test_what_was_appended_is_read_and_survives_a_restart(shelf: Shelf) -> None:
    log = shelf.open()
    log.append(batch(log, b"a", b"b"))
    log.append(batch(log, b"c", epoch=3))
    flushed: list[bool] = []
    log.flush(lambda: flushed.append(True))
    log.close()

    log = shelf.open()

    assert flushed == [True]
    assert records(log) == [b"a", b"b", b"c"]
    assert log.epochs() == [(1, 0), (3, 2)]
    assert (log.start_offset, log.end_offset) == (0, 3)


def test_control_batches_are_stored_as_they_are(shelf: Shelf) -> None:
    log = shelf.open()
    change = batches.leader_change(1, VoterSet([Voter(ReplicaKey(1))]), [1])
    data = batches.control_batch(0, 1, 0, [change])

    log.append(data)
    log.close()

    assert bytes(shelf.open().read(0, 1 << 20)) == data


def test_the_log_says_which_topic_it_is(shelf: Shelf) -> None:
    shelf.open().close()

    assert read_partition_metadata(shelf.filesystem, shelf.directory) == Uuid.METADATA_TOPIC


def test_truncation_drops_records_and_epochs(shelf: Shelf) -> None:
    log = shelf.open()
    log.append(batch(log, b"a"))
    log.append(batch(log, b"b", epoch=2))

    log.truncate_to(1)

    assert records(log) == [b"a"]
    assert log.epochs() == [(1, 0)]


def test_a_flush_is_reported_when_it_is_done_and_not_before(shelf: Shelf) -> None:
    log = shelf.open()
    shelf.is_delaying = True
    log.append(batch(log, b"a"))
    flushed: list[bool] = []

    log.flush(lambda: flushed.append(True))

    assert flushed == []
    shelf.delayed.pop()()
    assert flushed == [True]


def test_a_failed_flush_is_a_failure_and_no_acknowledgement(tmp_path: Path) -> None:
    shelf = Shelf(DiskFileSystem(), str(tmp_path))
    log = shelf.open()
    shelf._sync = lambda work, done: done(OSError("the disk is gone"))  # type: ignore[method-assign]  # the fault
    log = shelf.open()
    log.append(batch(log, b"a"))
    flushed: list[bool] = []

    log.flush(lambda: flushed.append(True))

    assert flushed == []
    assert [str(error) for error in shelf.failures] == ["the disk is gone"]


def test_records_that_were_synced_survive_a_power_loss() -> None:
    filesystem = SimFileSystem(Random(1))
    filesystem.make_directory("/data")
    filesystem.sync_directory("/")
    shelf = Shelf(filesystem, "/data")
    log = shelf.open()
    log.append(batch(log, b"kept"))
    log.flush(lambda: None)
    log.append(batch(log, b"lost or kept"))

    shelf.filesystem = filesystem.after_power_loss()

    assert records(shelf.open())[:1] == [b"kept"]


def test_a_snapshot_is_listed_read_and_found_again(shelf: Shelf) -> None:
    log = shelf.open()
    log.append(batch(log, b"a", b"b"))
    snapshot_id = OffsetAndEpoch(1, 2)

    take_snapshot(log, snapshot_id, b"everything")
    log.close()

    log = shelf.open()
    assert list(log.snapshots()) == [(snapshot_id, 10)]
    assert log.read_snapshot(snapshot_id, 5, 100) == b"thing"
    assert log.read_snapshot(snapshot_id, 10, 100) == b""
    name = "00000000000000000002-0000000001.checkpoint"
    assert snapshot_file_name(snapshot_id) == name
    assert shelf.filesystem.exists(f"{shelf.directory}/{name}")


def test_half_a_snapshot_is_gone_after_a_restart(shelf: Shelf) -> None:
    log = shelf.open()
    log.write_snapshot(OffsetAndEpoch(4, 90), 0, b"half of it")
    log.close()

    log = shelf.open()

    assert list(log.snapshots()) == []
    assert not any(each.name.endswith(".part") for each in shelf.filesystem.scan(shelf.directory))


def test_an_installed_snapshot_replaces_the_log(shelf: Shelf) -> None:
    log = shelf.open()
    log.append(batch(log, b"old"))
    take_snapshot(log, OffsetAndEpoch(1, 1))
    received = OffsetAndEpoch(4, 90)
    log.write_snapshot(received, 0, b"first attempt that was given up")
    log.write_snapshot(received, 0, b"abc")
    log.write_snapshot(received, 3, b"def")

    log.install_snapshot(received)

    for each in (log, shelf.open()):
        assert (each.start_offset, each.end_offset, each.epochs()) == (90, 90, [])
        assert list(each.snapshots()) == [(received, 6)]
    log.append(batch(log, b"new", epoch=4))
    assert records(log) == [b"new"]


def test_a_crash_before_the_log_was_emptied_is_made_good(shelf: Shelf) -> None:
    log = shelf.open()
    log.append(batch(log, b"old"))
    received = OffsetAndEpoch(4, 90)
    log.note_snapshot(received, log.snapshot_job(received, [b"all"])())
    log.close()

    log = shelf.open()

    assert (log.start_offset, log.end_offset) == (90, 90)


def test_pruning_deletes_older_snapshots_and_whole_segments(shelf: Shelf) -> None:
    log = shelf.open()
    for number in range(3):
        log.append(batch(log, b"%d" % number))
        take_snapshot(log, OffsetAndEpoch(1, number + 1))
    log.append(batch(log, b"after"))
    log.set_high_watermark(4)

    log.delete_before(OffsetAndEpoch(1, 2))

    for each in (log, shelf.open()):
        assert each.start_offset == 2
        assert sorted(found for found, _ in each.snapshots()) == [
            OffsetAndEpoch(1, 2),
            OffsetAndEpoch(1, 3),
        ]
        assert records(each) == [b"2", b"after"]
        assert each.epochs() == [(1, 2)]


def test_a_log_without_its_beginning_and_without_snapshot_is_refused(shelf: Shelf) -> None:
    log = shelf.open()
    log.append(batch(log, b"a"))
    take_snapshot(log, OffsetAndEpoch(1, 1))
    log.append(batch(log, b"b"))
    log.set_high_watermark(2)
    log.delete_before(OffsetAndEpoch(1, 1))
    log.close()
    shelf.filesystem.remove(f"{shelf.directory}/{snapshot_file_name(OffsetAndEpoch(1, 1))}")

    with pytest.raises(KafkaStorageError, match="begins at offset 1 and has no snapshot"):
        shelf.open()


def test_retention_by_size_keeps_the_newest_snapshot(shelf: Shelf) -> None:
    shelf.config = MetadataLogConfig(retention_bytes=10)
    log = shelf.open()
    log.append(batch(log, b"a"))
    assert log.superfluous_before() is None

    take_snapshot(log, OffsetAndEpoch(1, 1))

    assert log.superfluous_before() == OffsetAndEpoch(1, 1)


def test_retention_by_age_keeps_what_is_young() -> None:
    shelf = Shelf(SimFileSystem(Random(1)), "/data")
    shelf.config = MetadataLogConfig(retention_ms=1000)
    log = shelf.open()
    for number in range(3):
        log.append(batch(log, b"a"))
        take_snapshot(log, OffsetAndEpoch(1, number + 1))
        shelf.clock.advance(600)

    assert log.superfluous_before() == OffsetAndEpoch(1, 3)


def test_nothing_is_superfluous_within_the_limits(shelf: Shelf) -> None:
    log = shelf.open()
    log.append(batch(log, b"a"))
    take_snapshot(log, OffsetAndEpoch(1, 1))
    log.set_high_watermark(1)
    log.delete_before(OffsetAndEpoch(1, 1))

    assert log.superfluous_before() is None


class Quorum:
    """The other ports of a driver that is alone."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def send(self, request_id: int, peer: Peer, message: Message) -> None:
        raise AssertionError("there is nobody to send to")

    def set(self, deadline_ms: int | None) -> None: ...

    def committed(self, high_watermark: int) -> None:
        self.told.append(high_watermark)

    def snapshot_installed(self, snapshot_id: OffsetAndEpoch) -> None:
        raise AssertionError("nobody sends snapshots")

    def leadership_changed(self, leader_id: int | None, epoch: int) -> None:
        self.told.append((leader_id, epoch))

    def stalled(self) -> None:
        self.told.append("stalled")

    def shutdown_completed(self) -> None:
        self.told.append("shut down")


def start_driver(shelf: Shelf, log: MetadataLog, quorum: Quorum) -> RaftDriver:
    driver = RaftDriver(
        LocalNode(ReplicaKey(1), "cluster", "CONTROLLER"),
        QuorumConfig(voters=("1@localhost:9093",), append_linger_ms=0),
        random=Random(1),
        clock=shelf.clock,
        log=log,
        store=FileQuorumStateStore(shelf.filesystem, shelf.directory),
        network=quorum,
        alarm=quorum,
        listener=quorum,
    )
    driver.start()
    return driver


def test_a_quorum_of_one_elects_itself_commits_and_goes_on_after_a_restart(shelf: Shelf) -> None:
    log, quorum = shelf.open(), Quorum()
    driver = start_driver(shelf, log, quorum)
    assert driver.core.role is Role.LEADER
    _, end = driver.submit(driver.core.epoch, [b"a topic"])
    assert quorum.told[-1] == end
    first_epoch = driver.core.epoch

    log, quorum = shelf.open(), Quorum()
    driver = start_driver(shelf, log, quorum)

    assert driver.core.epoch > first_epoch
    assert b"a topic" in records(log)


@pytest.mark.parametrize("kraft_version", [0, 1])
def test_the_vote_is_remembered_in_kafkas_json(shelf: Shelf, kraft_version: int) -> None:
    shelf.filesystem.make_directory(shelf.directory)
    store = FileQuorumStateStore(shelf.filesystem, shelf.directory)
    assert store.read() is None
    voted = ReplicaKey(3, Uuid(bytes(range(16))) if kraft_version else Uuid.ZERO)

    store.write(ElectionState(7, None, voted), kraft_version, (1, 3))

    assert store.read() == ElectionState(7, None, voted)
    text = shelf.filesystem.read_bytes(f"{shelf.directory}/quorum-state").decode()
    assert text == (
        '{"leaderId":-1,"leaderEpoch":7,"votedId":3,'
        '"votedDirectoryId":"AAECAwQFBgcICQoLDA0ODw","data_version":1}'
        if kraft_version
        else '{"clusterId":"","leaderId":-1,"leaderEpoch":7,"votedId":3,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1},{"voterId":3}],"data_version":0}'
    )


@pytest.mark.parametrize("content", ["", "{", '{"data_version":9}', '{"data_version":1}', "[]"])
def test_a_damaged_quorum_state_is_refused(content: str) -> None:
    filesystem = SimFileSystem(Random(1))
    filesystem.make_directory("/data")
    file = filesystem.open("/data/quorum-state", create=True)
    file.pwrite(content.encode(), 0)
    file.close()

    with pytest.raises(KafkaStorageError, match=r"quorum-state is corrupt"):
        FileQuorumStateStore(filesystem, "/data").read()
