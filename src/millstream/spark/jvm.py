"""The JVM of a session: it outlives signals that are not meant for it, and starts without noise.

`sessions` calls `start_jvm` before it asks PySpark for a session; PySpark takes the JVM that is
there. It runs in a process session of its own: a signal to the process group (Ctrl-C, `timeout`,
systemd) reaches Python alone, which lets batches finish first. When Python ends, however that
happens, the JVM reads the end of its input and ends too.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager, suppress
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_STDERR: Final = 2
NOISE: Final = (
    b"WARNING: Using incubator modules",
    b"Using Spark's default log4j profile",
    b"Setting default log level to",
    b"To adjust logging level use sc.setLogLevel",
    b"Setting Spark log level to",
    b"NativeCodeLoader: Unable to load native-hadoop library",
)
"""What every JVM of Spark's says when it starts, whatever the log level is."""


def start_jvm(
    settings: Mapping[str, str], log: Path | None = None, *, logs_stdout: bool = False
) -> None:
    """Start the JVM with Spark's settings, unless PySpark has one.

    What it writes to stderr goes to `log`, or to our stderr without the noise; with `logs_stdout`
    the log has what it writes to stdout as well.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    context: Any = SparkContext
    launch: Any = launch_gateway  # It has no types.
    with context._lock, ExitStack() as opened:
        if context._gateway is not None:
            return
        # None of its signals is for us, and none of ours for it.
        process: dict[str, Any] = {"start_new_session": True}
        if log is None:
            process["stderr"] = opened.enter_context(_passed_on_without_noise())
        else:
            process["stderr"] = opened.enter_context(log.open("ab"))
            if logs_stdout:
                process["stdout"] = process["stderr"]
        gateway = launch(SparkConf().setAll(list(settings.items())), process)
        context._ensure_initialized(gateway=gateway)


@contextmanager
def _passed_on_without_noise() -> Iterator[int]:
    """The end of a pipe whose other end a thread reads as long as a process has this one."""
    reading, writing = os.pipe()
    Thread(target=pass_on, args=(reading,), name="stderr of the JVM", daemon=True).start()
    try:
        yield writing
    finally:
        os.close(writing)


def pass_on(reading: int, to: int = _STDERR) -> None:
    """Copy lines from one descriptor to another, and leave out the noise."""
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            if not any(each in line for each in NOISE):
                with suppress(OSError):  # A stderr that was closed; the JVM must not wait for it.
                    os.write(to, line)
