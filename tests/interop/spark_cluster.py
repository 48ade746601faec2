"""A Spark cluster of this machine's own: a standalone master and workers, each with its address.

Spark runs a second copy of a task on another host only, so each worker has a loopback address of
its own. The tests of clusters use it; it stops whatever it has started.
"""

from __future__ import annotations

import os
import socket
import subprocess
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from millstream.spark import java
from tests.integration.node.harness import free_port
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

START_SECONDS_MAX = 120
_DEPLOY = "org.apache.spark.deploy"


@contextmanager
def running_cluster(scratch: Path, workers: int = 2, cores: int = 2) -> Iterator[str]:
    """The address of a master that has so many workers."""
    port, page = free_port(), free_port()
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as processes:
        arguments = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page)]
        processes.enter_context(_running(scratch, "master", f"{_DEPLOY}.master.Master", *arguments))
        _wait_for_port(port)
        for number in range(workers):
            home = scratch / f"worker-{number}"
            arguments = ["--host", f"127.0.0.{number + 2}", "--webui-port", "0", "--memory", "2g"]
            arguments += ["--cores", str(cores), "--work-dir", str(home), master]
            processes.enter_context(
                _running(scratch, home.name, f"{_DEPLOY}.worker.Worker", *arguments)
            )
        _wait_for_workers(page, workers)
        yield master


@contextmanager
def _running(scratch: Path, name: str, main: str, *arguments: str) -> Iterator[None]:
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        **java.environment(),
        "SPARK_HOME": str(home),
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    with (scratch / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [home / "bin" / "spark-class", main, *arguments],
            env=environment,
            stdout=log,
            stderr=log,
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


def _wait_for_port(port: int) -> None:
    def is_open() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    _wait_until(is_open, f"no master of Spark at port {port}")


def _wait_for_workers(page: int, count: int) -> None:
    def are_there() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{page}/json/", timeout=10) as answer:
                found: int = answer.read().count(b'"ALIVE"')
        except urllib.error.URLError:
            return False
        return found > count  # The master is alive too.

    _wait_until(are_there, f"fewer than {count} workers of Spark")


def _wait_until(holds: Callable[[], bool], otherwise: str) -> None:
    until(holds, lambda: otherwise, limit_seconds=START_SECONDS_MAX, look_seconds=0.2)
