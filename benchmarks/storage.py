"""What does a batch cost on its way to disk and back? The log beside plain writes and reads.

`python -m benchmarks.storage [--quick] [--json]`: CPU microseconds per batch. The log checks,
numbers and appends batches of 16 KiB and 1 MiB and reads them back as slices; the peer writes and
reads the same bytes in a plain file. Both in one run, interleaved, median of the rounds, on pages
that were touched before. Then the cost of an append to a log of 10^3 to 10^6 batches. The last line
is one JSON object: name to {ours, peer, ratio}; ratio is ours by the peer's, below 1 is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from millstream import _accel
from millstream.records import RecordBatchBuilder
from millstream.storage.disk import DiskFileSystem
from millstream.storage.log.config import LogConfig
from millstream.storage.log.loader import LoadRequest
from millstream.storage.log.unified_log import UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NOW_MS = 1_700_000_000_000
SIZES = {"16KiB": 16 << 10, "1MiB": 1 << 20}
BYTES_PER_ROUND, QUICK_BYTES_PER_ROUND = 64 << 20, 16 << 20
ROUNDS, QUICK_ROUNDS = 9, 3
LENGTHS, QUICK_LENGTHS = (1_000, 10_000, 100_000, 1_000_000), (1_000, 10_000, 100_000)
PROBE = 2_000
"""How many appends are measured at each length."""

Results = dict[str, dict[str, float]]


class Sample(NamedTuple):
    """CPU and wall time of one round, in microseconds per batch."""

    cpu: float
    wall: float


def build_batch(size: int) -> bytearray:
    """A producer's batch of about this size: values of 1 KiB, or one small one."""
    builder = RecordBatchBuilder(size)
    while builder.size < size - 1100:
        builder.append(NOW_MS, None, os.urandom(1024))
    builder.append(NOW_MS, None, os.urandom(max(size - builder.size - 20, 1)))
    return bytearray(builder.build())


def open_log(directory: str) -> UnifiedLog:
    """A log that rolls at the usual size."""
    config = LogConfig(max_message_bytes=2 << 20)
    request = LoadRequest(
        filesystem=DiskFileSystem(), directory=directory, config=config, now_ms=NOW_MS
    )
    return UnifiedLog.open(request)


def measured(work: Callable[[], None], count: int) -> Sample:
    """Run it once."""
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    work()
    cpu, wall = time.process_time_ns() - cpu, time.perf_counter_ns() - wall
    return Sample(cpu / 1000 / count, wall / 1000 / count)


class LogContender:
    """Appends to a log and reads it back; truncated between rounds, so that pages are warm."""

    def __init__(self, directory: str, template: bytearray, count: int) -> None:
        self._log = open_log(directory)
        self._template = template
        self._count = count

    def append(self) -> None:
        log, template = self._log, self._template
        for _ in range(self._count):
            # What a request's buffer is: fresh each time, because the leader numbers it in place.
            log.append_as_leader(template[:], 0, NOW_MS)

    def read(self) -> None:
        log, size = self._log, len(self._template)
        offset, step = 0, log.log_end_offset // self._count
        for _ in range(self._count):
            fetched = log.read(offset, size)
            assert fetched.records is not None
            assert len(fetched.records.read()) == size
            offset += step

    def reset(self) -> None:
        self._log.truncate_to(0, NOW_MS)


class FileContender:
    """The same bytes in a plain file."""

    def __init__(self, directory: str, template: bytearray, count: int) -> None:
        path = Path(directory) / "plain"
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        self._template = template
        self._count = count

    def append(self) -> None:
        template, position = self._template, 0
        for _ in range(self._count):
            position += os.pwrite(self._descriptor, template[:], position)

    def read(self) -> None:
        size = len(self._template)
        for number in range(self._count):
            assert len(os.pread(self._descriptor, size, number * size)) == size

    def reset(self) -> None:
        os.ftruncate(self._descriptor, 0)


def compare(directory: str, label: str, size: int, rounds: int, round_bytes: int) -> Results:
    """Append and read, both contenders, round by round."""
    template = build_batch(size)
    count = max(round_bytes // size, 1)
    contenders: dict[str, LogContender | FileContender] = {
        "ours": LogContender(f"{directory}/{label}-0", template, count),
        "peer": FileContender(directory, template, count),
    }
    samples: dict[tuple[str, str], list[Sample]] = {}
    for number in range(rounds + 1):
        for name, contender in contenders.items():
            appended, read = measured(contender.append, count), measured(contender.read, count)
            contender.reset()
            if number:  # the first round only warms up
                samples.setdefault(("append", name), []).append(appended)
                samples.setdefault(("read", name), []).append(read)
    return {
        f"{verb} {label}": row({who: samples[verb, who] for who in ("ours", "peer")})
        for verb in ("append", "read")
    }


def row(samples: dict[str, list[Sample]]) -> dict[str, float]:
    """Medians, and the ratio of CPU times."""
    cpu = {who: statistics.median(each.cpu for each in found) for who, found in samples.items()}
    wall = {who: statistics.median(each.wall for each in found) for who, found in samples.items()}
    return {
        "ours": round(cpu["ours"], 2),
        "peer": round(cpu["peer"], 2),
        "ratio": round(cpu["ours"] / cpu["peer"], 2),
        "ours_wall": round(wall["ours"], 2),
        "peer_wall": round(wall["peer"], 2),
    }


def by_length(directory: str, lengths: tuple[int, ...]) -> Iterator[tuple[int, float]]:
    """CPU microseconds per append of a small batch, when the log has so many already."""
    log = open_log(f"{directory}/long-0")
    template = build_batch(200)
    appended = 0

    def append(count: int) -> None:
        for _ in range(count):
            log.append_as_leader(template[:], 0, NOW_MS)

    for length in lengths:
        append(length - appended)
        samples = [measured(lambda: append(PROBE // 5), PROBE // 5).cpu for _ in range(5)]
        appended = length + PROBE
        yield length, statistics.median(samples)


def main() -> None:
    """Print a table, and JSON as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a rough answer in a few seconds")
    parser.add_argument("--json", action="store_true", help="only the last line")
    parser.add_argument("--directory", help="where to write (default: a temporary directory)")
    options = parser.parse_args()
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    round_bytes = QUICK_BYTES_PER_ROUND if options.quick else BYTES_PER_ROUND
    say = (lambda text: None) if options.json else print
    say(f"kernel: {'compiled' if _accel.COMPILED else 'plain'}; CPU microseconds per batch")
    results: Results = {}
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        for label, size in SIZES.items():
            found = compare(directory, label, size, rounds, round_bytes)
            results |= found
            for name, values in found.items():
                say(
                    f"{name:15} log {values['ours']:9.2f}  file {values['peer']:9.2f}  "
                    f"ratio {values['ratio']:5.2f}"
                )
        first = None
        for length, cost in by_length(directory, QUICK_LENGTHS if options.quick else LENGTHS):
            first = first or cost
            results[f"append after {length}"] = {
                "ours": round(cost, 2),
                "peer": round(first, 2),
                "ratio": round(cost / first, 2),
            }
            say(f"append of 200 B after {length:>9,} batches: {cost:6.2f}")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
