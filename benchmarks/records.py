"""What does a record cost? Both kernels beside aiokafka, kafka-python and confluent-kafka.

`python -m benchmarks.records [--quick] [--json]`: CPU nanoseconds per record on the same records,
all contenders interleaved in one run, median of the rounds. The last line is one JSON object: name
to {ours, peer, ratio}, where ratio above 1 means that we are faster.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks import records_compression, records_confluent
from millstream import _accel
from millstream.records.plain import arrow as plain_arrow
from millstream.records.plain import crc32c as plain_crc32c
from millstream.records.plain import record_codec as plain_codec

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

FIRST_TIMESTAMP = 1_700_000_000_000
SIZES = {"100B": (100, 5_000), "1KiB": (1_024, 900)}
"""Bytes of a value, and how many such records make a batch of a usual size."""
ROUNDS, QUICK_ROUNDS = 21, 5
SLOW_EVERY = 4
"""Contenders in plain Python run in every fourth round only: they take most of the time."""
HEADER_SIZE, CRC_END = 61, 21


class Kernel(NamedTuple):
    """One of the two versions."""

    codec: ModuleType
    arrow: ModuleType
    crc32c: Callable[[Any], int]


class Contest(NamedTuple):
    """The same work by several contenders; `ours` is the first."""

    name: str
    records: int
    contenders: dict[str, Callable[[], Any]]


Results = dict[str, dict[str, float]]


def kernels() -> dict[str, Kernel]:
    """Both versions by name, the compiled one first where it was built."""
    plain = Kernel(plain_codec, plain_arrow, plain_crc32c.crc32c)
    if not _accel.COMPILED:
        return {"plain": plain}
    from millstream._accel.arrow import records as arrow
    from millstream._accel.codec import crc32c, record_codec

    return {"compiled": Kernel(record_codec, arrow, crc32c.crc32c), "plain": plain}


def rows_of(size: int, count: int) -> list[tuple[int, bytes, bytes]]:
    """(timestamp, key, value) of records that do not repeat themselves."""
    return [
        (FIRST_TIMESTAMP + i // 50, b"key-%07d" % i, i.to_bytes(4, "big") * (size // 4))
        for i in range(count)
    ]


def encode_contest(label: str, rows: list[Any], batch: bytes) -> Contest:
    """Rows to one sealed batch."""
    contenders: dict[str, Callable[[], Any]] = {}
    for name, kernel in kernels().items():
        contenders[name] = _extend(kernel)(rows)
    for name, kernel in kernels().items():
        contenders[f"{name}, append each"] = _append(kernel)(rows)
    contenders["aiokafka"] = _peer_encoder("aiokafka.record.default_records", rows)
    contenders["kafka-python"] = _peer_encoder("kafka.record.default_records", rows)
    for name, encode in contenders.items():
        assert bytes(encode())[HEADER_SIZE:] == batch[HEADER_SIZE:], name
    return Contest(f"encode_{label}", len(rows), contenders)


def _extend(kernel: Kernel) -> Callable[[list[Any]], Callable[[], bytes]]:
    def contender(rows: list[Any]) -> Callable[[], bytes]:
        writer = kernel.codec.BatchWriter()

        def run() -> bytes:
            writer.clear()
            writer.extend(rows)
            sealed: bytes = writer.seal()
            return sealed

        return run

    return contender


def _append(kernel: Kernel) -> Callable[[list[Any]], Callable[[], bytes]]:
    def contender(rows: list[Any]) -> Callable[[], bytes]:
        writer = kernel.codec.BatchWriter()

        def run() -> bytes:
            writer.clear()
            append = writer.append
            for timestamp, key, value in rows:
                append(timestamp, key, value)
            sealed: bytes = writer.seal()
            return sealed

        return run

    return contender


def _peer_encoder(module: str, rows: list[Any]) -> Callable[[], Any]:
    builder_class = import_module(module).DefaultRecordBatchBuilder

    def run() -> Any:
        builder = builder_class(
            magic=2,
            compression_type=0,
            is_transactional=False,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=1 << 30,
        )
        append = builder.append
        for offset, (timestamp, key, value) in enumerate(rows):
            append(offset, timestamp, key, value, [])
        return builder.build()

    return run


def decode_contest(label: str, rows: list[Any], batch: bytes) -> Contest:
    """One batch, its checksum checked, to a list of records."""
    contenders: dict[str, Callable[[], Any]] = {}
    for name, kernel in kernels().items():
        contenders[name] = _decode(kernel, batch, len(rows))
    contenders["aiokafka"] = _peer_decoder("aiokafka.record.default_records", bytearray(batch))
    contenders["kafka-python"] = _peer_decoder("kafka.record.default_records", batch)
    for name, decode in contenders.items():
        found = [(record.timestamp, record.key, record.value) for record in decode()]
        assert found == rows, name
    return Contest(f"decode_{label}", len(rows), contenders)


def _decode(kernel: Kernel, batch: bytes, count: int) -> Callable[[], Any]:
    decode, crc32c = kernel.codec.decode_records, kernel.crc32c

    def run() -> Any:
        view = memoryview(batch)
        crc32c(view[CRC_END:])
        return decode(view[HEADER_SIZE:], count, 0, FIRST_TIMESTAMP)

    return run


def _peer_decoder(module: str, batch: Any) -> Callable[[], Any]:
    batch_class = import_module(module).DefaultRecordBatch

    def run() -> list[Any]:
        reader = batch_class(batch)
        assert reader.validate_crc()
        return list(reader)

    return run


def to_arrow_contest(label: str, rows: list[Any], batch: bytes) -> Contest:
    """One batch, its checksum checked, to Arrow columns; the peer goes over Python objects."""
    pyarrow: Any = import_module("pyarrow")
    contenders: dict[str, Callable[[], Any]] = {}
    for name, kernel in kernels().items():
        contenders[name] = _to_arrow(kernel, batch, len(rows))
    decode = _peer_decoder("aiokafka.record.default_records", bytearray(batch))

    def over_objects() -> Any:
        records = decode()
        return pyarrow.table(
            {
                "key": [record.key for record in records],
                "value": [record.value for record in records],
                "timestamp": [record.timestamp for record in records],
                "offset": [record.offset for record in records],
            }
        )

    contenders["aiokafka and pyarrow"] = over_objects
    return Contest(f"to_arrow_{label}", len(rows), contenders)


def _to_arrow(kernel: Kernel, batch: bytes, count: int) -> Callable[[], Any]:
    builder, crc32c = kernel.arrow.ArrowRecordsBuilder(), kernel.crc32c

    def run() -> Any:
        view = memoryview(batch)
        crc32c(view[CRC_END:])
        builder.append(view[HEADER_SIZE:], count, 0, FIRST_TIMESTAMP)
        return builder.finish().__arrow_c_array__()

    return run


def from_arrow_contest(label: str, rows: list[Any], batch: bytes) -> Contest:
    """An Arrow table to one sealed batch; the peer goes over Python objects."""
    pyarrow: Any = import_module("pyarrow")
    timestamps, keys, values = (list(column) for column in zip(*rows, strict=True))
    table = pyarrow.table({"key": keys, "value": values, "timestamp": timestamps})
    contenders: dict[str, Callable[[], Any]] = {}
    for name, kernel in kernels().items():
        contenders[name] = _from_arrow(kernel, table)

    def over_objects() -> Any:
        columns = (table[name].to_pylist() for name in ("timestamp", "key", "value"))
        return _peer_encoder("aiokafka.record.default_records", list(zip(*columns, strict=True)))()

    contenders["pyarrow and aiokafka"] = over_objects
    for name, encode in contenders.items():
        assert bytes(encode())[HEADER_SIZE:] == batch[HEADER_SIZE:], name
    return Contest(f"from_arrow_{label}", len(rows), contenders)


def _from_arrow(kernel: Kernel, table: Any) -> Callable[[], bytes]:
    writer = kernel.codec.BatchWriter()

    def run() -> bytes:
        writer.clear()
        for chunk in kernel.arrow.ArrowRecordsReader(table):
            writer.extend_arrow(chunk, 0, len(chunk), 1 << 30, 0)
        sealed: bytes = writer.seal()
        return sealed

    return run


def contests() -> list[Contest]:
    """All of them, in the order of the goals."""
    found = []
    first = next(iter(kernels().values()))
    for label, (size, count) in SIZES.items():
        rows = rows_of(size, count)
        batch = _extend(first)(rows)()
        found += [
            encode_contest(label, rows, batch),
            decode_contest(label, rows, batch),
            to_arrow_contest(label, rows, batch),
            from_arrow_contest(label, rows, batch),
        ]
    return found


def measure(contest: Contest, rounds: int) -> dict[str, float]:
    """Median CPU nanoseconds per record of each contender."""
    samples: dict[str, list[int]] = {name: [] for name in contest.contenders}
    for round_number in range(rounds):
        for name, run in contest.contenders.items():
            is_slow = "plain" in name or name == "kafka-python"
            if is_slow and round_number % SLOW_EVERY:
                continue
            if not is_slow:
                run()  # so that nobody pays for the caches that another one filled
            start = time.thread_time_ns()
            run()
            samples[name].append(time.thread_time_ns() - start)
    return {name: statistics.median(taken) / contest.records for name, taken in samples.items()}


def compare(contest: str, costs: dict[str, float], unit: str, *, quiet: bool) -> Results:
    """Our cost (the first) against each other's, printed and as JSON will have it."""
    (our_name, ours), *others = costs.items()
    if not quiet:
        print(f"\n{contest}: {our_name} {ours:.1f} {unit}")
    found = {}
    for name, cost in others:
        key = f"{contest}_vs_{name.replace(' ', '_').replace(',', '')}"
        ratio = cost / ours
        found[key] = {"ours": round(ours, 2), "peer": round(cost, 2), "ratio": round(ratio, 2)}
        if not quiet:
            print(f"    {name:28} {cost:10.1f} {unit}  {ratio:7.2f}x")
    return found


def main() -> None:
    """Measure everything and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.records", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", action="store_true", help="only the last line")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's, on import
    rounds = QUICK_ROUNDS if arguments.quick else ROUNDS
    results: Results = {}
    costs = {}
    for contest in contests():
        costs[contest.name] = measure(contest, rounds)
        results |= compare(contest.name, costs[contest.name], "ns/record", quiet=arguments.json)
    for label, (size, _) in SIZES.items():
        whole = records_confluent.measure(size, 20_000 if arguments.quick else 100_000)
        for verb, contest_name in (("produce", "encode"), ("consume", "decode")):
            ours = next(iter(costs[f"{contest_name}_{label}"].items()))
            against = dict([ours, ("confluent-kafka, end to end", whole[verb])])
            results |= compare(
                f"{contest_name}_{label}", against, "ns/record", quiet=arguments.json
            )
    for name, pair in records_compression.measure(rounds).items():
        results |= compare(name, pair, "us/batch", quiet=arguments.json)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
