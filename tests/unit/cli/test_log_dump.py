"""`log dump`: every kind of file is shown, and damage of every kind is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream.cli.faults import ExitCode
from millstream.cli.log_check import check_file
from millstream.cli.log_entries import entries
from millstream.cli.log_files import FileKind, find_files, log_file
from millstream.cli.main import main
from millstream.cli.record_format import Encoding
from millstream.metadata.bootstrap import bootstrap_metadata, encode_bootstrap
from millstream.metadata.records import encode_record, versioned
from millstream.protocol.messages import (
    LeaderChangeMessage,
    OffsetCommitKey,
    OffsetCommitValue,
    TopicRecord,
)
from millstream.protocol.records_framing import GROUP_RECORDS, encode_kraft_control
from millstream.records import (
    Compression,
    ControlType,
    EndTxnMarker,
    RecordBatchBuilder,
    control_batch,
    end_txn_marker,
)
from millstream.storage.checkpoint import write_numbers, write_offsets
from millstream.storage.disk import DiskFileSystem
from millstream.storage.log.index import OffsetIndex, TimeIndex
from millstream.storage.log.producer_snapshot import SnapshotEntry, render_snapshot
from millstream.storage.log.transaction_index import AbortedTransaction, TransactionIndex
from millstream.storage.manager.meta_properties import (
    MetaProperties,
    write_meta_properties,
    write_partition_metadata,
)
from millstream.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Sequence

DISK = DiskFileSystem()
ID = Uuid(bytes(range(16)))
SEGMENT = "00000000000000000010.log"


def batch(offset: int, *values: bytes, timestamp: int = 1000, **options: Any) -> bytes:
    builder = RecordBatchBuilder()
    builder.extend((timestamp, b"key", value, (("h", b"v"),)) for value in values)
    return builder.build(base_offset=offset, **options)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The directory of a partition with one segment of three batches."""
    directory = tmp_path / "orders-0"
    directory.mkdir()
    pieces = [
        batch(10, b"a", b"b", timestamp=1000, compression=Compression.GZIP),
        batch(
            12, b"c", timestamp=3000, producer_id=7, producer_epoch=1, base_sequence=4,
            is_transactional=True,
        ),
        end_txn_marker(
            EndTxnMarker(ControlType.ABORT, 5),
            producer_id=7, producer_epoch=1, timestamp=2000, base_offset=13,
        ),
    ]  # fmt: skip
    (directory / SEGMENT).write_bytes(b"".join(pieces))
    positions = [0, len(pieces[0]), len(pieces[0]) + len(pieces[1])]
    offsets = OffsetIndex(DISK, str(directory / SEGMENT).replace(".log", ".index"), 10, 80)
    offsets.append(12, positions[1])
    offsets.append(13, positions[2])
    offsets.release()  # Not sealed: the rest of the file is zeros, as in a segment in use.
    times = TimeIndex(DISK, str(directory / SEGMENT).replace(".log", ".timeindex"), 10, 120)
    times.append_if_later(3000, 12)
    times.release()
    return directory


def rows_of(path: Path, *, with_records: bool = False) -> list[Any]:
    file = log_file(str(path))
    assert file is not None
    return list(entries(file, with_records=with_records, encoding=Encoding.TEXT))


def problem_of(path: Path) -> str | None:
    file = log_file(str(path))
    assert file is not None
    return check_file(file).problem


def dump(*arguments: str | Path) -> int:
    return main(["log", "dump", *map(str, arguments)])


def lines_of(capsys: pytest.CaptureFixture[str]) -> Sequence[str]:
    return capsys.readouterr().out.splitlines()


def test_a_segment_is_shown_batch_by_batch(log: Path) -> None:
    first, second, third = rows_of(log / SEGMENT)

    assert (first["base_offset"], first["last_offset"], first["count"]) == (10, 11, 2)
    assert (first["compression"], first["flags"], first["producer_id"]) == ("gzip", [], None)
    assert (second["producer_id"], second["producer_epoch"], second["base_sequence"]) == (7, 1, 4)
    assert second["flags"] == ["transactional"]
    assert third["flags"] == ["control", "transactional"]
    assert third["position"] == first["size"] + second["size"]


def test_records_are_shown_when_asked_for(log: Path) -> None:
    first, _, third = rows_of(log / SEGMENT, with_records=True)

    assert [each["value"] for each in first["records"]] == ["a", "b"]
    assert first["records"][0]["headers"] == [["h", "v"]]
    assert third["records"] == [
        {"offset": 13, "timestamp": 2000, "control": "ABORT", "coordinator_epoch": 5}
    ]


def test_indexes_are_shown_without_the_room_at_their_end(log: Path) -> None:
    assert [row["offset"] for row in rows_of(log / SEGMENT.replace(".log", ".index"))] == [12, 13]
    [entry] = rows_of(log / SEGMENT.replace(".log", ".timeindex"))
    assert entry == {"time": "1970-01-01T00:00:03.000Z", "timestamp": 3000, "offset": 12}


def test_small_files_are_shown(tmp_path: Path) -> None:
    directory = str(tmp_path)
    write_offsets(
        DISK, f"{directory}/replication-offset-checkpoint", {TopicPartition("orders", 1): 5}
    )
    write_numbers(DISK, f"{directory}/leader-epoch-checkpoint", [(0, 0), (3, 7)])
    write_meta_properties(DISK, directory, MetaProperties("cluster", 1, ID))
    write_partition_metadata(DISK, directory, ID)
    (tmp_path / "quorum-state").write_text('{"leaderId": 1, "leaderEpoch": 2}')
    index = TransactionIndex(DISK, f"{directory}/{0:020d}.txnindex", 0)
    index.append(AbortedTransaction(7, 1, 2, 3))
    producer = SnapshotEntry(7, 1, 4, 12, 0, 3000, -1, -1)
    (tmp_path / f"{13:020d}.snapshot").write_bytes(render_snapshot([producer]))

    shown = {file.kind: rows_of(Path(file.path)) for file in find_files([directory])}

    assert shown[FileKind.OFFSET_CHECKPOINT] == [{"topic": "orders", "partition": 1, "offset": 5}]
    assert shown[FileKind.EPOCH_CHECKPOINT][1] == {"epoch": 3, "start_offset": 7}
    assert shown[FileKind.META_PROPERTIES] == [
        {"cluster_id": "cluster", "node_id": 1, "directory_id": str(ID)}
    ]
    assert shown[FileKind.PARTITION_METADATA] == [{"topic_id": str(ID)}]
    assert shown[FileKind.QUORUM_STATE] == [{"leaderId": 1, "leaderEpoch": 2}]
    assert shown[FileKind.TRANSACTION_INDEX][0]["last_stable_offset"] == 3
    [row] = shown[FileKind.PRODUCER_SNAPSHOT]
    assert (row["producer_id"], row["transaction_first_offset"]) == (7, None)
    assert [problem_of(Path(file.path)) for file in find_files([directory])] == [None] * 7


def test_metadata_records_are_decoded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    builder = RecordBatchBuilder()
    record = TopicRecord(name="orders", topic_id=ID)
    builder.append(1000, None, encode_record(versioned(record, 29)))
    builder.append(1000, None, b"\x01\x7f\x00")
    _, value = encode_kraft_control(LeaderChangeMessage(leader_id=3))
    leader = control_batch([(ControlType.LEADER_CHANGE, value)], timestamp=1000)
    (directory / f"{0:020d}.log").write_bytes(leader + builder.build(base_offset=1))

    assert dump(directory, "--records") == ExitCode.OK

    printed = "\n".join(lines_of(capsys))
    assert "LEADER_CHANGE leader_id=3" in printed
    assert f'TopicRecord name="orders" topic_id="{ID}" version=0' in printed
    assert "there is no metadata record of type 127" in printed
    assert problem_of(directory / f"{0:020d}.log") is not None


def test_records_of_coordinators_are_decoded(tmp_path: Path) -> None:
    directory = tmp_path / "__consumer_offsets-3"
    directory.mkdir()
    builder = RecordBatchBuilder()
    key = OffsetCommitKey(group="g", topic="orders", partition=2)
    builder.append(1000, *GROUP_RECORDS.encode(key, OffsetCommitValue(offset=9)))
    builder.append(1000, *GROUP_RECORDS.encode(key, None))
    (directory / f"{0:020d}.log").write_bytes(builder.build())

    [row] = rows_of(directory / f"{0:020d}.log", with_records=True)

    first, second = row["records"]
    assert first["record"] == "OffsetCommitKey"
    assert first["fields"] == {"group": "g", "topic": "orders", "partition": 2}
    assert first["value"]["offset"] == 9
    assert second["value"] is None


def test_a_checkpoint_of_metadata_is_shown_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "bootstrap.checkpoint"
    path.write_bytes(encode_bootstrap(bootstrap_metadata(), 1000))

    rows = rows_of(path, with_records=True)

    assert rows[1]["records"][0]["record"] == "FeatureLevelRecord"
    assert problem_of(path) is None
    path.write_bytes(path.read_bytes()[: rows[2]["position"]])
    assert "cut off" in (problem_of(path) or "")


def test_json_has_one_object_to_a_line(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dump(log, "--records", "--json", "--encoding", "hex") == ExitCode.OK

    rows = [json.loads(line) for line in lines_of(capsys)]
    assert [row["kind"] for row in rows] == [
        *["segment"] * 3, *["offset_index"] * 2, "time_index",
    ]  # fmt: skip
    assert rows[0]["records"][0]["value"] == {"hex": "61"}


def test_people_see_tables(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dump(log / SEGMENT, log / SEGMENT.replace(".log", ".index"), "--records") == ExitCode.OK

    lines = lines_of(capsys)
    assert f"{SEGMENT}  segment, " in lines[0]
    assert lines[1].startswith("POSITION  OFFSET")
    assert 'key="key" value="a"' in lines[3]
    assert "OFFSET  POSITION" in lines


def test_a_good_log_is_verified(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dump(log, "--verify") == ExitCode.OK

    lines = lines_of(capsys)
    assert lines[0].endswith("3 batches, 4 records, offsets 10 to 13")
    assert lines[-1] == "all good: 3 files"


def test_damage_is_told_with_an_exit_code(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray((log / SEGMENT).read_bytes())
    data[-3] ^= 1
    (log / SEGMENT).write_bytes(data)

    assert dump(log, "--verify") == ExitCode.FAILED
    printed = capsys.readouterr()
    assert "BAD" in printed.out
    assert "checksum" in printed.out
    assert "1 file of 3 damaged" in printed.err

    assert dump(log, "--verify", "--json") == ExitCode.FAILED
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["problem"] is None for row in found] == [False, True, True]

    assert dump(log / SEGMENT) == ExitCode.OK
    assert "BAD-CHECKSUM" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (batch(10, b"a")[:-1], "part of a batch"),
        (batch(10, b"a") + b"\x07" * 30, "magic 7"),
        (batch(9, b"a"), "cannot follow 9"),
        (batch(10, b"a") + batch(10, b"b"), "cannot follow 10"),
        (batch(10, b"a")[:16] + b"\x63" + batch(10, b"a")[17:], "magic 99"),
    ],
)
def test_damage_of_a_segment_is_found(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / SEGMENT).write_bytes(content)

    assert says in (problem_of(tmp_path / SEGMENT) or "")


def test_room_reserved_behind_the_batches_is_no_damage(tmp_path: Path) -> None:
    (tmp_path / SEGMENT).write_bytes(batch(10, b"a") + bytes(1000))

    assert problem_of(tmp_path / SEGMENT) is None


def test_what_cannot_be_read_is_told_after_what_can(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / SEGMENT).write_bytes(batch(10, b"a") + batch(11, b"b")[:-4])

    assert dump(tmp_path / SEGMENT) == ExitCode.FAILED

    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 3
    assert printed.err.startswith(f"millstream: {tmp_path / SEGMENT}")


@pytest.mark.parametrize(
    ("appended", "says"),
    [([(12, 99)], "no batch"), ([(9999, 0)], None), ([(13, 1)], "no batch")],
)
def test_an_index_that_points_nowhere_is_found(
    log: Path, appended: list[tuple[int, int]], says: str | None
) -> None:
    path = log / SEGMENT.replace(".log", ".index")
    path.unlink()
    index = OffsetIndex(DISK, str(path), 10, 80)
    for offset, position in appended:
        index.append(offset, position)
    index.seal()

    problem = problem_of(path)
    assert problem is None if says is None else says in (problem or "")


def test_an_index_out_of_order_is_found(log: Path) -> None:
    path = log / SEGMENT.replace(".log", ".index")
    data = path.read_bytes()
    path.write_bytes(data[8:16] + data[:8])

    assert "cannot follow" in (problem_of(path) or "")


def test_a_time_index_that_hides_later_records_is_found(log: Path) -> None:
    path = log / SEGMENT.replace(".log", ".timeindex")
    path.unlink()
    index = TimeIndex(DISK, str(path), 10, 120)
    index.append_if_later(1500, 13)
    index.seal()

    assert "an earlier record has time 3000" in (problem_of(path) or "")

    path.write_bytes(path.read_bytes() * 2)
    (log / SEGMENT).write_bytes(b"")
    assert "cannot follow" in (problem_of(path) or "")


def test_an_index_without_its_segment_is_found(log: Path) -> None:
    (log / SEGMENT).unlink()

    assert f"no {SEGMENT}" in (problem_of(log / SEGMENT.replace(".log", ".index")) or "")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("leader-epoch-checkpoint", b"0\n2\n5 1\n4 2\n", "epoch 4"),
        ("leader-epoch-checkpoint", b"7\n", "version"),
        ("quorum-state", b"{", "Expecting"),
        ("quorum-state", b"[]", "not a JSON object"),
        ("00000000000000000000.snapshot", b"", "bytes"),
        ("00000000000000000000.txnindex", b"x", "multiple"),
        ("00000000000000000000.index", b"x", "multiple"),
        ("meta.properties", b"version=9", "version 9"),
    ],
)
def test_damage_of_small_files_is_found(
    tmp_path: Path, name: str, content: bytes, says: str
) -> None:
    (tmp_path / f"{0:020d}.log").write_bytes(b"")
    (tmp_path / name).write_bytes(content)

    assert says in (problem_of(tmp_path / name) or "")


def test_records_that_cannot_be_decompressed_say_so(tmp_path: Path) -> None:
    data = bytearray(batch(10, b"a" * 100, compression=Compression.GZIP))
    data[61] ^= 0xFF
    (tmp_path / SEGMENT).write_bytes(data)

    [row] = rows_of(tmp_path / SEGMENT, with_records=True)

    assert row["records"][0]["record"] == "unreadable"


def test_a_codec_that_nobody_knows_is_shown_by_its_number(tmp_path: Path) -> None:
    data = bytearray(batch(10, b"a"))
    data[22] |= 7
    (tmp_path / SEGMENT).write_bytes(data)

    assert rows_of(tmp_path / SEGMENT)[0]["compression"] == "unknown (7)"


def test_a_log_that_may_not_be_written_can_be_read(log: Path) -> None:
    (log / SEGMENT).chmod(0o444)

    assert len(rows_of(log / SEGMENT)) == 3
