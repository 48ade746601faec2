"""A JVM with Apache Kafka's tools and a broker of ours, for each module."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.integration.node.harness import running
from tests.interop.java_client import require_broker_jars
from tests.interop.tools import Cluster, JavaTools, compile_programs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# What waits in a broker for minutes or hours is to happen while a test looks on.
SETTINGS = {
    "log.initial.task.delay.ms": 100,
    "log.retention.check.interval.ms": 200,
    "log.retention.ms": -1,
    "log.segment.delete.delay.ms": 100,
    "log.cleaner.backoff.ms": 100,
}


@pytest.fixture(scope="session")
def java_classes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The jars, and our own programs compiled."""
    scratch = tmp_path_factory.mktemp("java")
    jars = require_broker_jars(scratch)
    return jars, compile_programs(jars, scratch)


@pytest.fixture(scope="module")
def java(java_classes: tuple[Path, Path]) -> Iterator[JavaTools]:
    """Apache Kafka's tools and client.

    No longer than the broker: a tool that fails leaves a client behind, which looks for its broker.
    """
    tools = JavaTools(*java_classes)
    yield tools
    tools.close()


@pytest.fixture(scope="module")
def cluster(java: JavaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker of ours in a process, with two log directories; it must have nothing to regret."""
    data = [tmp_path_factory.mktemp(name) for name in ("first", "second")]
    log_dirs = f"log.dirs={data[0]},{data[1]}"
    settings = [log_dirs, *(f"{key}={value}" for key, value in SETTINGS.items())]
    arguments = [part for setting in settings for part in ("--set", setting)]
    with running(data[0], *arguments) as node:
        yield Cluster(java, node.until_ready(), data)
        code, log = node.finish(signal.SIGTERM)
    assert code == 0
    assert "ERROR" not in log
    assert "Traceback" not in log


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    return str(request.node.name).replace("[", ".").replace("]", "").removeprefix("test_")
