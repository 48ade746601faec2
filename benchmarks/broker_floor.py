"""What the load generator of `benchmarks.broker` could do at most: it against a C program.

The program answers every request at once with the bytes a broker would send, from a template, and
sends records with sendfile. If a broker's row is far below its floor, the generator is not what
limits it. For Produce there is a second one which writes what it receives before it answers, and
checks nothing: what one thread that makes these system calls reaches on this machine.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.broker_rows import (
    FETCH_BATCH_BYTES,
    ROUND_BYTES_MAX,
    SIZES,
    FetchRow,
    ProduceRow,
    build_batch,
    measured,
    produce_frame,
    reuse_pages,
)
from benchmarks.load import compiled, cpu_seconds, run_program, running
from millstream.protocol.frame import encode_response
from millstream.protocol.messages import fetch, produce
from millstream.types import Uuid

if TYPE_CHECKING:
    from benchmarks.broker_rows import Figures

NAME = "floor"
LOG_NAME = "floor + log"
_TOPIC_ID = bytes(range(16))
_UNLIMITED = 1 << 40
_TAGS = bytes(3)  # After the records: no tagged fields of the partition, the topic, the answer.


@dataclass(frozen=True, slots=True)
class ProduceFloor:
    """Requests go in, the same answer comes back."""

    row: ProduceRow
    has_log: bool = False

    @property
    def name(self) -> str:
        """Of the row whose floor it is."""
        return self.row.name

    def measure(self, seconds: float) -> Figures:
        """The most the generator can do."""
        batch = build_batch(SIZES[self.row.size])
        answer = produce.PartitionProduceResponse(index=0, error_code=0, base_offset=0)
        topic = produce.TopicProduceResponse(topic_id=Uuid(_TOPIC_ID), partition_responses=[answer])
        response = encode_response(produce.ProduceResponse(responses=[topic]), 13, 0)
        with tempfile.TemporaryDirectory() as directory:
            template, frames = Path(directory, "answer"), Path(directory, "frames")
            template.write_bytes(response)
            frames.write_bytes(produce_frame(_TOPIC_ID, 0, batch))
            log = [directory] if self.has_log else []
            limit = ROUND_BYTES_MAX // len(batch.data) // self.row.connections
            with running([str(compiled("floor")), str(template), *log]) as (pid, port):
                load = ("clients", "produce", port, frames, self.row.connections, self.row.window)
                run_program(*load, seconds / 4, limit // 4)
                if log:
                    reuse_pages(ROUND_BYTES_MAX)
                before = cpu_seconds(pid)
                report = run_program(*load, seconds, limit)
                used = cpu_seconds(pid) - before
        return measured(report, used, len(batch.data))


@dataclass(frozen=True, slots=True)
class FetchFloor:
    """The same records again and again, by sendfile."""

    row: FetchRow

    @property
    def name(self) -> str:
        """Of the row whose floor it is."""
        return self.row.name

    def measure(self, seconds: float) -> Figures:
        """The most the generator can do."""
        wanted = SIZES[self.row.size]
        size = min(wanted, FETCH_BATCH_BYTES)
        records, count = bytearray(), 0
        while not records or len(records) + size <= wanted:
            batch = build_batch(size)
            records += count.to_bytes(8, "big") + batch.data[8:]
            count += batch.records
        with tempfile.TemporaryDirectory() as directory:
            template, data = Path(directory, "answer"), Path(directory, "data")
            template.write_bytes(_fetch_answer(bytes(records)))
            data.write_bytes(bytes(records) + _TAGS)
            floor = [str(compiled("floor")), str(template), str(data)]
            with running([*floor, str(len(records) + len(_TAGS))]) as (pid, port):
                clients = ("clients", "fetch", port, _TOPIC_ID.hex(), self.row.connections)
                load = (*clients, self.row.connections, len(records), count)
                run_program(*load, seconds / 4, _UNLIMITED)
                before = cpu_seconds(pid)
                report = run_program(*load, seconds, _UNLIMITED)
                used = cpu_seconds(pid) - before
        return measured(report, used, len(records))


def _fetch_answer(records: bytes) -> bytes:
    """A whole answer up to its records."""
    partition = fetch.PartitionData(
        partition_index=0,
        high_watermark=1,
        last_stable_offset=1,
        log_start_offset=0,
        records=records,
    )
    topic = fetch.FetchableTopicResponse(topic_id=Uuid(_TOPIC_ID), partitions=[partition])
    response = encode_response(fetch.FetchResponse(session_id=1, responses=[topic]), 18, 0)
    assert response.endswith(records + _TAGS)
    return response[: -len(records) - len(_TAGS)]


def floors_of(row: object) -> dict[str, ProduceFloor | FetchFloor]:
    """The floors of a row of load, by name."""
    if isinstance(row, ProduceRow):
        return {NAME: ProduceFloor(row), LOG_NAME: ProduceFloor(row, has_log=True)}
    return {NAME: FetchFloor(row)} if isinstance(row, FetchRow) else {}


LOADS: tuple[ProduceFloor | FetchFloor, ...] = (
    ProduceFloor(ProduceRow("100B", 1, 1)),
    ProduceFloor(ProduceRow("100B", 4, 5)),
    ProduceFloor(ProduceRow("100B", 64, 1)),
    ProduceFloor(ProduceRow("16KiB", 4, 5)),
    ProduceFloor(ProduceRow("64KiB", 4, 5)),
    ProduceFloor(ProduceRow("1MiB", 4, 5)),
    FetchFloor(FetchRow("1KiB", 4)),
    FetchFloor(FetchRow("64KiB", 1)),
    FetchFloor(FetchRow("64KiB", 4)),
    FetchFloor(FetchRow("1MiB", 4)),
)
