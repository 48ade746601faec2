"""Kills a process that appends with acknowledgements from disk, again and again.

    python -m tests.integration.storage.kill --rounds 100

After each `kill -9` the directories are opened by a new log manager, and every record that was
acknowledged in this or any earlier round must be there, with its offset, in order. The pipe is the
witness: what it delivered was acknowledged, and what is in it survives the death of the writer.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from millstream.records.batch import split_batches
from millstream.types import TopicPartition
from tests.integration.storage.process import TOPIC, Process, record_value

if TYPE_CHECKING:
    from millstream.storage.log.unified_log import UnifiedLog

_ROOT = Path(__file__).parents[3]


@dataclass(slots=True)
class KillReport:
    """What all rounds together have shown."""

    rounds: int = 0
    acknowledgements: int = 0
    verified_records: int = 0
    last_acknowledged: dict[int, int] = field(default_factory=dict)


def kill_rounds(rounds: int, base: Path, seed: int) -> KillReport:
    """Run so many lives of the process on the same directories; raises at the first lie."""
    report, random = KillReport(), Random(seed)
    paths = (f"{base}/one", f"{base}/two")
    for _ in range(rounds):
        _live_and_die(report, paths, random)
        _verify(report, paths, is_clean_stop=random.random() < 0.3)
        report.rounds += 1
    return report


def _live_and_die(report: KillReport, paths: tuple[str, ...], random: Random) -> None:
    """Let a process acknowledge some appends, then kill it, and note all that it acknowledged."""
    command = [sys.executable, "-m", "tests.integration.storage.process", *paths]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=_ROOT)
    assert process.stdout is not None
    with process.stdout as lines:
        for number, line in enumerate(lines):
            if number == 0:
                patience = random.randint(0, 300)
            if line.endswith("\n"):
                partition, offset = map(int, line.split())
                assert offset > report.last_acknowledged.get(partition, -1)
                report.last_acknowledged[partition] = offset
                report.acknowledgements += 1
            if number == patience:
                process.kill()
    assert process.wait() == -9


def _verify(report: KillReport, paths: tuple[str, ...], *, is_clean_stop: bool) -> None:
    process = Process(paths)
    process.manager.start()
    report.verified_records = 0
    for partition, last_offset in report.last_acknowledged.items():
        log = process.manager.get(TopicPartition(TOPIC, partition))
        assert log is not None, f"partition {partition} is gone"
        assert log.log_end_offset > last_offset, (partition, log.log_end_offset, last_offset)
        report.verified_records += _verify_log(log, partition)
    if is_clean_stop:
        assert process.manager.stop() == {}
    else:
        process.manager.abandon()


def _verify_log(log: UnifiedLog, partition: int) -> int:
    """Read a log from its beginning to its end; how many records it has."""
    expected = 0
    while expected < log.log_end_offset:
        found = log.read(expected, 1 << 20).records
        assert found is not None, f"partition {partition} has nothing at {expected}"
        for batch in split_batches(found.read()):
            batch.check_crc()
            for record in batch.records():
                assert record.offset == expected
                assert record.value == record_value(partition, expected)
                expected += 1
    return expected


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as base:
        report = kill_rounds(arguments.rounds, Path(base), arguments.seed)
    sys.stdout.write(
        f"{report.rounds} kills, {report.acknowledgements} acknowledgements, "
        f"{report.verified_records} records verified at the end: nothing lost\n"
    )


if __name__ == "__main__":
    main()
