"""Disks that are full or become read-only under a broker process.

The disk is a small tmpfs, which only root may mount; elsewhere these tests are skipped, and
`tests/integration/node/test_power_loss.py` has a simulated one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.faults.harness import broker_on, lines_of
from tests.integration.node.harness import Client, running
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.timeout(120),
    pytest.mark.skipif(
        sys.platform != "linux" or os.geteuid() != 0, reason="only root may mount a small disk"
    ),
]

KAFKA_STORAGE_ERROR = 56
DISK_BYTES = 24 << 20


def mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a disk cannot be mounted here: {done.stderr.strip()}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A directory with room for 24 MiB."""
    made = tmp_path / "disk"
    made.mkdir()
    mount("-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(made))
    yield made
    subprocess.run(["umount", "-l", str(made)], check=True)


def fill_with_records(client: Client) -> int:
    """Write until the disk is full; how many records were acknowledged."""
    for number in range(100):
        code, _ = client.produce("orders", b"%03d" % number + b"x" * 500_000)
        if code:
            assert code == KAFKA_STORAGE_ERROR
            return number
    raise AssertionError("the disk is larger than it should be")


def numbers(client: Client) -> list[int]:
    return [int(value[:3]) for value in client.values("orders")]


@pytest.mark.parametrize("durability", ["page-cache", "disk"])
def test_a_full_disk_refuses_records_and_nothing_else(small_disk: Path, durability: str) -> None:
    with broker_on(small_disk / "data") as broker:
        with broker.client() as client:
            client.create_topic("orders", millstream_durability=durability)
            ballast = small_disk / "ballast"
            ballast.write_bytes(bytes(4 << 20))
            acknowledged = fill_with_records(client)
            assert acknowledged > 10
            for _ in range(50):
                assert client.produce("orders", b"y" * 500_000)[0] == KAFKA_STORAGE_ERROR
            assert numbers(client) == list(range(acknowledged)), "it can be read"
            said = broker.said("disk is full")
            assert 1 <= len(said) <= 5, said

            ballast.unlink()
            code, offset = client.produce("orders", b"999" + b"x" * 500_000)
            assert (code, offset) == (0, acknowledged), "there is room again, without a restart"
        broker.node.finish(signal.SIGKILL)

    with broker_on(small_disk / "data") as broker, broker.client() as client:
        assert numbers(client) == [*range(acknowledged), 999]


def test_a_disk_too_full_for_metadata_refuses_until_there_is_room_and_loses_nothing(
    small_disk: Path,
) -> None:
    with broker_on(small_disk / "data") as broker:
        with broker.client() as client:
            client.create_topic("orders")
            (small_disk / "ballast").write_bytes(bytes(4 << 20))
            acknowledged = fill_with_records(client)
            _use_up(small_disk / "ballast")
            created = _create_until_refused(client)
            for _ in range(3):
                assert client.create_topic("one-too-many") == KAFKA_STORAGE_ERROR
            assert numbers(client) == list(range(acknowledged)), "records are served"

            (small_disk / "ballast").unlink()
            until(lambda: client.create_topic("after") == 0)
            assert client.produce("after", b"fine") == (0, 0)
            until(lambda: client.produce("topic-0", b"fine") == (0, 0))
        lines = broker.stop()
    _require_told_once(lines, "the controller decides nothing until there is room again")

    with broker_on(small_disk / "data") as broker, broker.client() as client:
        assert numbers(client) == list(range(acknowledged))
        assert created | {"after"} <= set(client.topics())
        assert client.values("after") == client.values("topic-0") == [b"fine"]


def test_a_node_whose_disk_is_too_full_for_metadata_stops_in_order(small_disk: Path) -> None:
    with broker_on(small_disk / "data") as broker:
        with broker.client() as client:
            client.create_topic("orders")
            (small_disk / "ballast").write_bytes(bytes(4 << 20))
            acknowledged = fill_with_records(client)
            _use_up(small_disk / "ballast")
            created = _create_until_refused(client)
        lines = broker.stop()
    _require_told_once(lines, "the controller decides nothing until there is room again")

    (small_disk / "ballast").unlink()
    with broker_on(small_disk / "data") as broker, broker.client() as client:
        assert numbers(client) == list(range(acknowledged))
        assert created <= set(client.topics())
        assert client.produce("topic-0", b"fine") == (0, 0)
        broker.stop()


def _use_up(file: Path) -> None:
    with file.open("ab", buffering=0) as opened:
        try:
            while True:
                opened.write(bytes(4096))
        except OSError:
            return


def _create_until_refused(client: Client) -> set[str]:
    """The topics that were promised before the disk had enough."""
    created: set[str] = set()
    for number in range(500):
        code = client.create_topic(f"topic-{number}")
        if code:
            assert code == KAFKA_STORAGE_ERROR
            return created
        created.add(f"topic-{number}")
    raise AssertionError("the disk is larger than it should be")


def _require_told_once(lines: list[dict[str, Any]], words: str) -> None:
    """The log says it, says it once, and has no traceback."""
    assert sum(words in line["message"] for line in lines) == 1, lines
    assert not [line for line in lines if "traceback" in line]
    assert len([line for line in lines if line["level"] in ("WARNING", "ERROR")]) <= 10, lines


@contextmanager
def read_only(directory: Path) -> Iterator[None]:
    """Let nothing new be written there; what is open stays open, and keeps a remount from it."""
    mount("--bind", str(directory), str(directory))
    mount("-o", "remount,bind,ro", str(directory))
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


def test_a_directory_that_becomes_read_only_takes_its_partitions_and_nothing_else(
    small_disk: Path,
) -> None:
    one, two = small_disk / "one", small_disk / "two"
    directories = ("--set", f"log.dirs={one},{two}", "--set", f"metadata.log.dir={one}")
    with broker_on(one, *directories) as broker:
        with broker.client() as client:
            for number in range(4):
                assert client.create_topic(f"before-{number}") == 0
                assert client.produce(f"before-{number}", b"kept") == (0, 0)
            with read_only(two):
                # One that goes to the second directory takes that out of service.
                codes = [_create_and_produce(client, f"during-{number}") for number in range(4)]
            assert KAFKA_STORAGE_ERROR in codes
            assert _create_and_produce(client, "after") == 0, "the first is in service"
        assert len(broker.said(str(two), "is out of service", level="ERROR")) == 1
        lines = broker.stop()
    assert not [line for line in lines if "traceback" in line]

    with broker_on(one, *directories) as broker, broker.client() as client:
        for name in ("before-0", "before-1", "before-2", "before-3", "after"):
            assert client.values(name) == [b"kept"]


def _create_and_produce(client: Client, topic: str) -> int:
    assert client.create_topic(topic) == 0
    return client.produce(topic, b"kept")[0]


def test_a_node_whose_only_directory_becomes_read_only_ends_and_loses_nothing(
    small_disk: Path,
) -> None:
    data = small_disk / "data"
    with broker_on(data) as broker, broker.client() as client:
        client.create_topic("orders")
        assert client.produce("orders", b"kept") == (0, 0)
        with read_only(data):
            with suppress(OSError):
                client.create_topic("one-too-many")
            code, log = broker.node.finish(None)
    lines = lines_of(log)
    assert code == 1
    assert [line["level"] for line in lines if "cannot go on" in line["message"]] == ["CRITICAL"]
    assert any("Read-only file system" in line["message"] for line in lines)
    assert not [line for line in lines if "traceback" in line]

    with broker_on(data) as broker, broker.client() as client:
        assert client.values("orders") == [b"kept"]
        broker.still_serves()


def test_a_directory_that_cannot_be_written_is_refused_with_its_name(small_disk: Path) -> None:
    data = small_disk / "data"
    with broker_on(data) as broker:
        broker.still_serves()
        broker.stop()
    mount("-o", "remount,ro", str(small_disk))

    with running(data) as node:
        code, log = node.finish()
    assert code == 1
    assert str(data) in log
    assert "Read-only file system" in log
    assert "Traceback" not in log

    mount("-o", "remount,rw", str(small_disk))
    with broker_on(data) as broker:
        broker.still_serves()
