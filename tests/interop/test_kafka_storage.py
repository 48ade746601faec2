"""Apache Kafka's tools read our log directories, we read Kafka's, and a directory goes round."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import pytest

from millstream.records import Compression, ControlType
from millstream.storage.log.config import LogConfig
from tests.interop.java_client import require_broker_jars
from tests.interop.kafka_broker import dump_segments
from tests.interop.log_keeper import LogKeeper, Writer, batches_of, format_for_us

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

SMALL = LogConfig(internal_segment_bytes=4000, index_interval_bytes=200)
COMPACTED = LogConfig(
    internal_segment_bytes=4000,
    index_interval_bytes=200,
    cleanup_policy=("compact",),
    min_cleanable_dirty_ratio=0.01,
    delete_retention_ms=1000,
)
CONFIGS = {
    "plain": SMALL,
    "codecs": SMALL,
    "stamped": LogConfig(internal_segment_bytes=4000, message_timestamp_type="LogAppendTime"),
    "epochs": SMALL,
    "transactions": SMALL,
    "compacted": COMPACTED,
}
COMPLAINTS = re.compile(
    r"mismatch|corrupt|invalid|exception|error|isvalid: false|out of order", re.IGNORECASE
)


class OurLogs(NamedTuple):
    """Directories that we wrote, and what a foreign reader must find in them."""

    directory: Path
    records: dict[str, list[str]]
    """By topic, the lines of `kafka-dump-log` about records, without their times."""

    def files(self, pattern: str) -> list[Path]:
        """Files of all topics."""
        return sorted(self.directory.glob(f"*-0/{pattern}"))


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Apache Kafka."""
    return require_broker_jars(tmp_path_factory.mktemp("maven"))


@pytest.fixture(scope="module")
def ours(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> OurLogs:
    """Every kind of log, closed in order."""
    directory = tmp_path_factory.mktemp("ours")
    format_for_us(directory)
    keeper = LogKeeper(directory, CONFIGS)
    fill(keeper)
    records = {topic: record_lines(keeper, topic) for topic in CONFIGS}
    keeper.stop()
    return OurLogs(directory, records)


def fill(keeper: LogKeeper) -> None:
    """Write the logs."""
    for topic in ("plain", "stamped"):
        writer = Writer(keeper.log(topic), keeper.clock)
        for number in range(150):
            writer.append([(b"k%d" % number, b"v" * 40), (None, b"w")], producer_id=number % 3 - 1)
    writer = Writer(keeper.log("codecs"), keeper.clock)
    for number in range(100):
        rows = [(b"k%d" % i, b"value-%d " % i * 8) for i in range(12)]
        writer.append([*rows], list(Compression)[number % 5])
    for epoch in (0, 1, 4):
        writer = Writer(keeper.log("epochs"), keeper.clock, epoch)
        for number in range(60):
            writer.append([(b"k%d" % number, b"v" * 30)])
    fill_transactions(Writer(keeper.log("transactions"), keeper.clock), 60)
    fill_compacted(keeper)


def fill_transactions(writer: Writer, count: int) -> None:
    """Commits and aborts of producers that overlap; the last transaction stays open."""
    for number in range(count):
        for producer_id in (7, 8):
            key = b"k%d" % (number % 10)
            writer.append([(key, b"t" * 30)], producer_id=producer_id, is_transactional=True)
        if number % 2:
            writer.end(7, ControlType.ABORT if number % 3 else ControlType.COMMIT)
        if number % 5 == 4:
            writer.end(8, ControlType.COMMIT if number % 10 == 4 else ControlType.ABORT)
    writer.append([(b"open", b"x")], producer_id=7, is_transactional=True)


def fill_compacted(keeper: LogKeeper) -> None:
    """Two passes with new records between, so that horizons are set and passed."""
    writer = Writer(keeper.log("compacted"), keeper.clock)
    for round_number in range(2):
        for number in range(120):
            value = None if number % 7 == 0 else b"v%d" % number * 8
            rows = [(b"k%d" % (number % 13), value), (b"k%d" % (number % 5), b"w" * 9)]
            writer.append([*rows], list(Compression)[number % 5], producer_id=number % 4 - 1)
        fill_transactions(writer, 20)
        writer.end(7, ControlType.ABORT)
        writer.append([(b"end", b"%d" % round_number * 3500)])
        writer.append([(b"end", b"%d" % round_number * 3500)])
        keeper.clean()
        keeper.clock.advance(60_000)
    assert len(keeper.cleaned) >= 2


def record_lines(keeper: LogKeeper, topic: str) -> list[str]:
    """What the dump tool must print about the records of a log."""
    lines = []
    for batch in batches_of(keeper.log(topic)):
        for record in batch.records():
            line = f"| offset: {record.offset}"
            if not batch.is_control:
                key = "" if record.key is None else f" key: {record.key.decode()}"
                line += key + ("" if record.value is None else f" payload: {record.value.decode()}")
            lines.append(line)
    return lines


def sections(output: str) -> dict[str, list[str]]:
    """The tool's output by file."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in output.splitlines():
        if line.startswith("Dumping "):
            name = line.removeprefix("Dumping ")
            found[name] = []
        elif name:
            found[name].append(line)
    return found


def test_the_dump_tool_finds_every_record(ours: OurLogs, jars: Path) -> None:
    output = dump_segments(jars, ours.files("*.log"), "--deep-iteration", "--print-data-log")
    assert not COMPLAINTS.search(output.replace("isvalid: true", ""))
    for topic, expected in ours.records.items():
        found = [
            re.sub(r" (Create|LogAppend)Time: .*headerKeys: \[\w*\]| endTxnMarker.*", "", line)
            for name, lines in sections(output).items()
            if f"/{topic}-0/" in name
            for line in lines
            if line.startswith("| offset")
        ]
        assert found == expected, topic


def test_the_indexes_agree_with_their_logs(ours: OurLogs, jars: Path) -> None:
    files = [*ours.files("*.index"), *ours.files("*.timeindex")]
    output = dump_segments(jars, files, "--verify-index-only")
    assert len(sections(output)) == len(files)
    # Of a batch that compaction has emptied the header still has its time. Like Kafka, we index
    # that; the tool looks for it in the records, finds none, and complains, of Kafka's logs too.
    accepted = re.sub(r"Found timestamp mismatch in :.*/compacted-0/.*\n.*: -1\n", "", output)
    assert not COMPLAINTS.search(accepted)


def test_the_indexes_are_sane(ours: OurLogs, jars: Path) -> None:
    files = [*ours.files("*.index"), *ours.files("*.timeindex")]
    output = dump_segments(jars, files, "--index-sanity-check")
    good = output.count("passed sanity check.") + output.count(".index is empty.")
    assert good == len(files)


def test_snapshots_and_transaction_indexes_can_be_read(ours: OurLogs, jars: Path) -> None:
    snapshots, indexes = ours.files("*.snapshot"), ours.files("*.txnindex")
    found = sections(dump_segments(jars, [*snapshots, *indexes]))
    assert len(snapshots) > 20
    assert not COMPLAINTS.search(str(found))
    last_snapshot = max(snapshots, key=lambda path: ("transactions-0" in str(path), path.name))
    of_producers = "\n".join(found[str(last_snapshot)])
    assert "producerId: 7 producerEpoch: 30" in of_producers
    assert "producerId: 8 producerEpoch: 12" in of_producers
    for path in indexes:
        lines = found[str(path)]
        assert len(lines) * 34 == path.stat().st_size
        assert all(line.startswith("version: 0 producerId: ") for line in lines)
