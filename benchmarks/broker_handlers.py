"""What a request costs between the network and the disk: CPU time per Produce and Fetch.

    python -m benchmarks.broker_handlers [--profile produce|fetch]

`KafkaApis.handle` is called as the network calls it, with real replicas and logs on a real file
system, without sockets. The write to the log file is part of a Produce; a Fetch ends with the slice
of the file that the network would send. Median of several rounds, in one process.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import statistics
import tempfile
import time
from typing import TYPE_CHECKING

from millstream.clock import SystemClock
from millstream.network.request import Outcome
from millstream.protocol.frame import encode_request
from millstream.records import RecordBatchBuilder
from millstream.storage.disk import DiskFileSystem
from tests.unit.server.fakes import Client
from tests.unit.server.harness import Broker, frame_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.network.request import Request
    from millstream.protocol.message import Message

_ROUNDS = 9
_CALLS = 2000
_FETCH_BYTES = 64 << 10


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


def microseconds(run: Callable[[int], None]) -> float:
    """CPU time per call."""
    run(_CALLS // 4)
    rounds = []
    for _ in range(_ROUNDS):
        started = time.process_time_ns()
        run(_CALLS)
        spent = getattr(run, "spent_ns", None) or time.process_time_ns() - started
        rounds.append(spent / _CALLS / 1000)
    return statistics.median(rounds)


def main() -> None:
    """Measure, or show where the time goes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", choices=("produce", "fetch"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        broker = Broker(filesystem=DiskFileSystem(), directories=(directory,), clock=SystemClock())
        broker.create()
        for _ in range(64):
            broker.produce(batch(16 << 10))
        cases = {
            "produce 100 B, version 7": produce_calls(broker, 100, 7),
            "produce 100 B, version 11": produce_calls(broker, 100, 11),
            "produce 100 B, version 13": produce_calls(broker, 100, 13),
            "produce 16 KiB, version 13": produce_calls(broker, 16 << 10, 13),
            "fetch 64 KiB, version 11": fetch_calls(broker, 11),
            "fetch 64 KiB, version 18": fetch_calls(broker, 18),
        }
        if options.profile:
            name = "produce 100 B, version 13" if options.profile == "produce" else None
            run = cases[name or "fetch 64 KiB, version 18"]
            run(1000)
            with cProfile.Profile() as profile:
                run(5000)
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)
            return
        figures = {name: round(microseconds(run), 1) for name, run in cases.items()}
    if options.json:
        print(json.dumps(figures))
        return
    for name, figure in figures.items():
        print(f"{name:30} {figure:6.1f} us")


if __name__ == "__main__":
    main()
