"""What a request costs between the network and the disk: CPU time per Produce and Fetch.

    python -m benchmarks.broker_handlers [--quick] [--json] [--profile produce|fetch]

`KafkaApis.handle` is called as the network calls it, with real replicas and logs on a real file
system, without sockets. The write to the log file is part of a Produce; a Fetch ends with the slice
of the file that the network would send. Beside it the log alone does the same, interleaved in one
process: the difference is what the layers between cost. Medians; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import statistics
import tempfile
import time
from typing import TYPE_CHECKING, NamedTuple

from millstream.clock import SystemClock
from millstream.network.server.request import Outcome
from millstream.protocol.frame import encode_request
from millstream.records import RecordBatchBuilder
from millstream.storage.disk import DiskFileSystem
from millstream.storage.log.log_results import FetchIsolation
from tests.unit.server.fakes import Client
from tests.unit.server.harness import Broker, frame_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.network.server.request import Request
    from millstream.protocol.message import Message

_ROUNDS, _QUICK_ROUNDS = 9, 3
_CALLS, _QUICK_CALLS = 2000, 500
_FETCH_BYTES = 64 << 10
_PROFILED = {"produce": "produce 100 B, version 13", "fetch": "fetch 64 KiB, version 18"}


def batch(size: int) -> bytes:
    """A batch of one record."""
    builder = RecordBatchBuilder()
    builder.append(time.time_ns() // 1_000_000, b"", bytes(size))
    return bytes(builder.build())


def produce_calls(broker: Broker, size: int, version: int) -> Callable[[int], None]:
    """Produce the same batch over and over, from a fresh receive buffer each time."""
    frame = encode_request(broker.produce_request(batch(size)), version, 1, "bench")
    template = frame_request(frame)
    original, scratch = bytes(template.buffer), template.buffer
    client = Client()
    handle = broker.apis.handle

    def run(count: int) -> None:
        for _ in range(count):
            # The receive buffer is patched by the log; the copy stands for the next read.
            scratch[:] = original
            answer = handle(_again(template, client))
            assert type(answer) is not Outcome

    return run


def fetch_calls(broker: Broker, version: int) -> Callable[[int], None]:
    """Fetch 64 KiB at a time, in a session, as a consumer that follows the log does."""
    client = Client()
    handle = broker.apis.handle
    first = broker.ask(fetch_message(broker, 0, 0), version, client=client)
    session_id = first.session_id
    epoch = 0

    def run(count: int) -> None:
        nonlocal epoch
        requests = []
        for _ in range(count):
            epoch += 1
            message = fetch_message(broker, session_id, epoch)
            requests.append(frame_request(encode_request(message, version, 1, "bench"), client))
        started = time.process_time_ns()
        for request in requests:
            answer = handle(request)
            assert len(answer) > 1  # type: ignore[arg-type]  # Parts, one of them a slice.
        run.spent_ns = time.process_time_ns() - started  # type: ignore[attr-defined]

    return run


def fetch_message(broker: Broker, session_id: int, epoch: int) -> Message:
    """One partition from its start."""
    return broker.fetch_request(
        0,
        max_wait_ms=500,
        partition_max_bytes=_FETCH_BYTES,
        session_id=session_id,
        session_epoch=epoch,
    )


def _again(template: Request, client: Client) -> Request:
    """The request anew, as the network would make it."""
    return type(template)(
        client,
        template.buffer,
        template.start,
        template.body,
        template.end,
        template.api_key,
        template.api_version,
        template.correlation_id,
        template._client_id_length,
        0,
    )


def append_calls(broker: Broker, size: int) -> Callable[[int], None]:
    """The same batch to the log alone."""
    original = batch(size)
    scratch = bytearray(original)
    log, clock = broker.partition().log, SystemClock()

    def run(count: int) -> None:
        for _ in range(count):
            scratch[:] = original
            log.append_as_leader(scratch, 0, clock.wall_ms())

    return run


def read_calls(broker: Broker) -> Callable[[int], None]:
    """The same records from the log alone."""
    log = broker.partition().log

    def run(count: int) -> None:
        for _ in range(count):
            log.read(0, _FETCH_BYTES, FetchIsolation.HIGH_WATERMARK)

    return run


class Case(NamedTuple):
    """A request, and what the log alone does for it."""

    ours: Callable[[int], None]
    log: Callable[[int], None]


def make_cases(broker: Broker) -> dict[str, Case]:
    """What is measured."""
    append, append_16k = append_calls(broker, 100), append_calls(broker, 16 << 10)
    read = read_calls(broker)
    return {
        "produce 100 B, version 7": Case(produce_calls(broker, 100, 7), append),
        "produce 100 B, version 11": Case(produce_calls(broker, 100, 11), append),
        "produce 100 B, version 13": Case(produce_calls(broker, 100, 13), append),
        "produce 16 KiB, version 13": Case(produce_calls(broker, 16 << 10, 13), append_16k),
        "fetch 64 KiB, version 11": Case(fetch_calls(broker, 11), read),
        "fetch 64 KiB, version 18": Case(fetch_calls(broker, 18), read),
    }


def compare(case: Case, rounds: int, calls: int) -> dict[str, float]:
    """CPU microseconds per call of both, interleaved."""
    taken: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        for run, figures in zip(case, taken, strict=True):
            spent = microseconds(run, calls)
            if number:  # The first round warms up.
                figures.append(spent)
    ours, log = (statistics.median(figures) for figures in taken)
    return {"ours": round(ours, 1), "peer": round(log, 1), "ratio": round(log / ours, 2)}


def microseconds(run: Callable[[int], None], calls: int) -> float:
    """CPU time per call."""
    started = time.process_time_ns()
    run(calls)
    spent = getattr(run, "spent_ns", None) or time.process_time_ns() - started
    return float(spent / calls / 1000)


def profile(run: Callable[[int], None]) -> None:
    """Where the time goes, by function."""
    run(1000)
    with cProfile.Profile() as profiler:
        run(5000)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def main() -> None:
    """Measure, or show where the time goes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--json", action="store_true", help="only the last line")
    parser.add_argument("--profile", choices=("produce", "fetch"))
    options = parser.parse_args()
    rounds = _QUICK_ROUNDS if options.quick else _ROUNDS
    calls = _QUICK_CALLS if options.quick else _CALLS
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as directory:
        broker = Broker(filesystem=DiskFileSystem(), directories=(directory,), clock=SystemClock())
        broker.create()
        for _ in range(64):
            broker.produce(batch(16 << 10))
        cases = make_cases(broker)
        if options.profile:
            profile(cases[_PROFILED[options.profile]].ours)
            return
        for name, case in cases.items():
            results[name] = row = compare(case, rounds, calls)
            if not options.json:
                print(f"{name:30} {row['ours']:6.1f} us   the log alone {row['peer']:6.1f} us")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
