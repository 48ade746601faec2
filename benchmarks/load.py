"""The load generators in C: compiled on first use, run, and what they found.

`network` and `broker` drive servers with them. Everything here needs Linux and a C compiler. The
programs say at their top what their arguments are.
"""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = Path(__file__).parent / "loadgen"


@functools.cache
def compiled(name: str) -> Path:
    """The program, compiled into a directory that goes with this process."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or sys.platform != "linux":
        sys.exit("this benchmark needs Linux and a C compiler for its load generator")
    program = _directory() / name
    subprocess.run([compiler, "-O2", "-o", program, SOURCES / f"{name}.c"], check=True)
    return program


@functools.cache
def _directory() -> Path:
    path = tempfile.mkdtemp(prefix="millstream-loadgen-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return Path(path)


def run_program(name: str, *arguments: object) -> dict[str, Any]:
    """What a generator reports; if it found a fault, its last words end this program."""
    done = subprocess.run(
        [compiled(name), *map(str, arguments)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{name} {' '.join(map(str, arguments))}: {done.stderr.strip()}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@contextmanager
def running(command: list[str]) -> Iterator[tuple[int, int]]:
    """A server that prints its port and runs until its standard input ends: its id and port."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.pid, int(process.stdout.readline())
        finally:
            process.stdin.close()


def cpu_seconds(pid: int) -> float:
    """The CPU time of all threads of a process, to the nanosecond: Linux has a clock for it."""
    return time.clock_gettime((~pid) << 3 | 2)
