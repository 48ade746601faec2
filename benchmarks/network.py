"""The cost of the network layer alone: frames in, fixed answers out, beside the C floor.

    python -m benchmarks.network [--quick] [--json] [--repeat N] [--only TEXT] [--loop uvloop]

A closed-loop C load generator drives our socket server with a handler that does nothing, and a C
program that makes the same system calls, interleaved. It needs Linux and a C compiler. The figures
are CPU microseconds of the server per request; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import statistics
import struct
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load import compiled, cpu_seconds, run_program, running

ANSWER_BYTES = 56
PRODUCE_V9 = (0, 9)


@dataclass(frozen=True, slots=True)
class Load:
    """One row: what is asked and how."""

    name: str
    request_bytes: int
    file_bytes: int
    connections: int
    window: int

    @property
    def response_bytes(self) -> int:
        """What the load generator counts."""
        return ANSWER_BYTES + self.file_bytes


LOADS = (
    Load("100 B, 32 connections", 100, 0, 32, 1),
    Load("100 B, 4 connections x 5", 100, 0, 4, 5),
    Load("16 KiB, 4 connections x 5", 16 << 10, 0, 4, 5),
    Load("1 MiB, 4 connections x 5", 1 << 20, 0, 4, 5),
    Load("64 KiB of a file, 4 connections", 100, 64 << 10, 4, 1),
    Load("1 MiB of a file, 4 connections", 100, 1 << 20, 4, 1),
)


# The server process.


class Region:
    """A part of a file as storage hands it out."""

    __slots__ = ("_descriptor", "length", "position")

    def __init__(self, descriptor: int, length: int) -> None:
        self._descriptor = descriptor
        self.position = 0
        self.length = length

    def fileno(self) -> int:
        """The descriptor."""
        return self._descriptor

    def read(self) -> bytes:
        """The bytes."""
        return os.pread(self._descriptor, self.length, self.position)


async def serve(file_path: str, file_bytes: int, buffer_bytes: int) -> None:
    """Answer every request with the same bytes until standard input ends."""
    from millstream.clock import SystemClock
    from millstream.network.server import (
        Outcome,
        Request,
        Response,
        SocketServer,
        SocketServerConfig,
    )
    from millstream.protocol.api import ApiKey

    answer = struct.pack(">i", ANSWER_BYTES + file_bytes - 4) + bytes(ANSWER_BYTES - 4)
    region = Region(os.open(file_path, os.O_RDONLY), file_bytes) if file_bytes else None

    def handle(request: Request) -> Response | Outcome:
        return answer if region is None else [answer, region]

    config = SocketServerConfig(
        listeners=("PLAINTEXT://127.0.0.1:0",),
        socket_send_buffer_bytes=buffer_bytes,
        socket_receive_buffer_bytes=buffer_bytes,
    )
    server = SocketServer(config, SystemClock())
    (endpoint,) = server.bind()
    server.serve("PLAINTEXT", handle, {ApiKey.PRODUCE: ApiKey.PRODUCE.released})
    print(endpoint.port, flush=True)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, stopped.set)
    await stopped.wait()
    await server.stop()


# The measuring process.


def request_frame(size: int) -> bytes:
    """A Produce v9 request with a body of zeros, `size` bytes in all."""
    client_id = b"benchmark"
    header = struct.pack(">hhih", *PRODUCE_V9, 1, len(client_id)) + client_id + b"\0"
    return struct.pack(">i", size - 4) + header + bytes(size - 4 - len(header))


def measure(load: Load, command: list[str], frame: Path, seconds: float) -> dict[str, float]:
    """One run after a short warm-up."""
    with running(command) as (pid, port):
        blast = ("blast", port, frame, load.response_bytes, load.connections, load.window)
        run_program(*blast, seconds / 4)
        before = cpu_seconds(pid)
        result = run_program(*blast, seconds)
        used = cpu_seconds(pid) - before
    rate = result["requests"] / result["seconds"]
    return {
        "requests_per_second": rate,
        "mb_per_second": rate * max(load.request_bytes, load.file_bytes) / 1e6,
        "cpu_us": used / result["requests"] * 1e6,
        "p50_us": result["p50_us"],
        "p99_us": result["p99_us"],
    }


def commands(
    load: Load, file: Path, answer: Path, options: argparse.Namespace
) -> dict[str, list[str]]:
    """The servers to compare."""
    ours = [sys.executable, "-m", "benchmarks.network", "--serve", "--loop", options.loop]
    ours += ["--file", str(file), "--file-bytes", str(load.file_bytes)]
    ours += ["--buffer-bytes", str(options.buffer_bytes)]
    floor = [str(compiled("floor")), str(answer)]
    if load.file_bytes:
        floor += [str(file), str(load.file_bytes)]
    return {"millstream": ours, "floor": floor}


def compare(load: Load, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """The median of interleaved runs of each server."""
    runs: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as directory:
        frame, file, answer = (Path(directory, name) for name in ("frame", "file", "answer"))
        answer.write_bytes(bytes(ANSWER_BYTES))
        frame.write_bytes(request_frame(load.request_bytes))
        file.write_bytes(bytes(max(load.file_bytes, 1)))
        for _ in range(options.repeat):
            for name, command in commands(load, file, answer, options).items():
                runs.setdefault(name, []).append(measure(load, command, frame, options.seconds))
    return {
        name: {key: statistics.median(run[key] for run in each) for key in each[0]}
        for name, each in runs.items()
    }


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short run of each")
    parser.add_argument("--json", action="store_true", help="only the last line")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="asyncio")
    parser.add_argument("--buffer-bytes", type=int, default=-1, help="of the kernel, -1: its own")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--file", default="", help=argparse.SUPPRESS)
    parser.add_argument("--file-bytes", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.repeat, options.seconds = 1, 0.3
    return options


def run_server(options: argparse.Namespace) -> None:
    """This process is the server."""
    serving = serve(options.file, options.file_bytes, options.buffer_bytes)
    if options.loop == "uvloop":
        importlib.import_module("uvloop").run(serving)
    else:
        asyncio.run(serving)


def main() -> None:
    """Measure and print."""
    options = parse_arguments()
    if options.serve:
        run_server(options)
        return
    results: dict[str, dict[str, float]] = {}
    for load in LOADS:
        if options.only not in load.name:
            continue
        found = compare(load, options)
        results |= ratios(load.name, found)
        if not options.json:
            for name, row in found.items():
                print(
                    f"{load.name:34} {name:11} {row['requests_per_second']:9.0f} req/s "
                    f"{row['mb_per_second']:7.0f} MB/s {row['cpu_us']:8.2f} us CPU "
                    f"p50 {row['p50_us']:7.1f} us  p99 {row['p99_us']:7.1f} us",
                    flush=True,
                )
    print(json.dumps(results))


def ratios(load: str, found: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Each figure of ours and the floor's; above 1 ours would be the better."""
    ours, floor = found["millstream"], found["floor"]
    return {
        f"{load}_{key}": {
            "ours": round(ours[key], 2),
            "peer": round(floor[key], 2),
            "ratio": round(
                floor[key] / ours[key] if key.endswith("_us") else ours[key] / floor[key], 2
            ),
        }
        for key in ours
    }


if __name__ == "__main__":
    main()
