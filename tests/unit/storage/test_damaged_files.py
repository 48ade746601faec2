"""Files of a log that are missing, emptied or zeroed although it was closed in order."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from millstream.records.control import ControlType, EndTxnMarker, end_txn_marker
from millstream.storage.checkpoint import ABORTED_FILE
from millstream.storage.filesystem import write_atomically
from millstream.storage.log.producer_entry import AppendOrigin
from millstream.testing.sim_filesystem import SimFileSystem
from tests.unit.storage.batches import NOW_MS, batch_bytes
from tests.unit.storage.logs import SMALL, append, fill, offsets, open_log

if TYPE_CHECKING:
    from millstream.storage.log.unified_log import UnifiedLog

PATH = "/logs/t-0"


@pytest.fixture
def filesystem() -> SimFileSystem:
    return SimFileSystem(Random(1))


def append_aborted(log: UnifiedLog, pid: int, sequence: int = 0) -> None:
    """A transaction of two records that is aborted."""
    data = batch_bytes(records=2, pid=pid, epoch=0, sequence=sequence, is_transactional=True)
    log.append_as_leader(bytearray(data), 0, NOW_MS)
    marker = end_txn_marker(
        EndTxnMarker(ControlType.ABORT, 0), producer_id=pid, producer_epoch=0, timestamp=NOW_MS
    )
    log.append_as_leader(
        bytearray(marker), 0, NOW_MS, origin=AppendOrigin.COORDINATOR, transaction_version=1
    )


def reopened(filesystem: SimFileSystem, end: int, **request: Any) -> UnifiedLog:
    """The log after a clean stop at an offset."""
    return open_log(filesystem, PATH, is_clean=True, recovery_point=end, **request)


def closed_log(filesystem: SimFileSystem) -> tuple[int, list[Any]]:
    """A log of several segments, two of which have aborted transactions; its end, and those."""
    log = open_log(filesystem, PATH)
    append_aborted(log, 7)
    fill(log, 10)
    append_aborted(log, 8)
    append_aborted(log, 7, sequence=2)
    fill(log, 10)
    log.tail.set_high_watermark(log.log_end_offset)
    aborted = log.aborted_transactions(0, log.log_end_offset)
    assert len(aborted) == 3
    end = log.log_end_offset
    log.close()
    return end, aborted


def transaction_indexes(filesystem: SimFileSystem) -> list[str]:
    names = [status.name for status in filesystem.scan(PATH)]
    return [f"{PATH}/{name}" for name in sorted(names) if name.endswith(".txnindex")]


class TestIndexesOfAbortedTransactions:
    @pytest.mark.parametrize("damage", ["missing", "emptied", "zeroed", "cut", "another"])
    @pytest.mark.parametrize("which", [0, -1])
    def test_one_that_is_damaged_is_rebuilt(
        self,
        filesystem: SimFileSystem,
        damage: str,
        which: int,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        end, aborted = closed_log(filesystem)
        path = transaction_indexes(filesystem)[which]
        data = filesystem.read_bytes(path)
        filesystem.remove(path)
        changed = {
            "emptied": b"",
            "zeroed": bytes(len(data)),
            "cut": data[:-5],
            "another": data[:9] + b"\x09" + data[10:],
        }
        if damage in changed:
            write_atomically(filesystem, path, changed[damage])

        log = reopened(filesystem, end)

        assert log.aborted_transactions(0, end) == aborted
        assert "rebuilding the index of aborted transactions" in caplog.text
        assert filesystem.read_bytes(path) == data
        log.close()
        caplog.clear()
        assert reopened(filesystem, end).aborted_transactions(0, end) == aborted
        assert not caplog.text

    def test_nothing_is_said_of_those_that_are_right(
        self, filesystem: SimFileSystem, caplog: pytest.LogCaptureFixture
    ) -> None:
        end, aborted = closed_log(filesystem)

        assert reopened(filesystem, end).aborted_transactions(0, end) == aborted
        assert not caplog.text

    def test_after_a_crash_those_of_closed_segments_are_looked_at_too(
        self, filesystem: SimFileSystem
    ) -> None:
        end, aborted = closed_log(filesystem)
        filesystem.remove(transaction_indexes(filesystem)[0])

        log = open_log(filesystem, PATH, recovery_point=end)

        assert log.aborted_transactions(0, end) == aborted

    def test_a_log_of_kafka_has_no_table_and_is_believed(self, filesystem: SimFileSystem) -> None:
        end, aborted = closed_log(filesystem)
        filesystem.remove(f"{PATH}/{ABORTED_FILE}")

        assert reopened(filesystem, end).aborted_transactions(0, end) == aborted

    def test_a_table_that_cannot_be_read_keeps_no_log_from_service(
        self, filesystem: SimFileSystem, caplog: pytest.LogCaptureFixture
    ) -> None:
        end, aborted = closed_log(filesystem)
        write_atomically(filesystem, f"{PATH}/{ABORTED_FILE}", b"what?\n")

        assert reopened(filesystem, end).aborted_transactions(0, end) == aborted
        assert ABORTED_FILE in caplog.text

    def test_a_log_without_transactions_has_no_table(self, filesystem: SimFileSystem) -> None:
        log = open_log(filesystem, PATH)
        fill(log, 20)
        log.close()

        assert not filesystem.exists(f"{PATH}/{ABORTED_FILE}")


class TestSegments:
    @staticmethod
    def close_log(filesystem: SimFileSystem) -> tuple[int, list[int]]:
        log = open_log(filesystem, PATH)
        fill(log, 30)
        end, bases = log.log_end_offset, [each.base_offset for each in log.segments]
        log.close()
        assert len(bases) > 3
        return end, bases

    @pytest.mark.parametrize("place", [0, 1])
    def test_a_missing_one_is_told(
        self, filesystem: SimFileSystem, place: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        end, bases = self.close_log(filesystem)
        filesystem.remove(f"{PATH}/{bases[place]:020}.log")

        reopened(filesystem, end)

        assert f"the segment at {bases[place]} is missing" in caplog.text

    def test_a_missing_last_one_is_told(
        self, filesystem: SimFileSystem, caplog: pytest.LogCaptureFixture
    ) -> None:
        end, bases = self.close_log(filesystem)
        filesystem.remove(f"{PATH}/{bases[-1]:020}.log")

        log = reopened(filesystem, end)

        assert f"ends at offset {bases[-1]}, it was closed at {end}" in caplog.text
        assert log.log_end_offset == bases[-1]

    @pytest.mark.parametrize("place", [0, 1, -1])
    def test_an_emptied_one_is_told(
        self, filesystem: SimFileSystem, place: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        end, bases = self.close_log(filesystem)
        write_atomically(filesystem, f"{PATH}/{bases[place]:020}.log", b"")

        reopened(filesystem, end)

        assert f"the segment at {bases[place]} is empty" in caplog.text

    def test_a_log_that_is_whole_says_nothing(
        self, filesystem: SimFileSystem, caplog: pytest.LogCaptureFixture
    ) -> None:
        end, _ = self.close_log(filesystem)

        assert offsets(reopened(filesystem, end)) == list(range(end))
        assert not caplog.text

    def test_neither_does_an_empty_one(
        self, filesystem: SimFileSystem, caplog: pytest.LogCaptureFixture
    ) -> None:
        open_log(filesystem, PATH, SMALL).close()

        append(reopened(filesystem, 0))

        assert not caplog.text
