"""Processes that hold a node's lock are found and stopped by `server stop` and `status`."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from millstream.errors import KafkaStorageError
from millstream.node import processes
from millstream.node.config import node_config
from millstream.node.main import EXIT_FAILED, EXIT_NOT_RUNNING, EXIT_OK, main
from millstream.node.processes import NodeProcess, find_process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from millstream.node.config import NodeConfig

pytestmark = pytest.mark.integration

HOLDER = """
import fcntl, os, signal, sys
signals = int(sys.argv[2])
def ignore(*_):
    global signals
    signals -= 1
    if not signals:
        os._exit(0)
signal.signal(signal.SIGTERM, ignore)
file = open(sys.argv[1], "r+")
fcntl.lockf(file.fileno(), fcntl.LOCK_EX)
print("held", flush=True)
while True:
    signal.pause()
"""
"""A process that holds a lock until it has got so many signals."""


class Holder:
    """A process that stands for a node."""

    def __init__(self, lock: Path, name: str, signals: int = 1) -> None:
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.touch()
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(lock), str(signals), name], stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"held\n"
        lock.write_text(f"{self.process.pid}\n")

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def config(tmp_path: Path) -> NodeConfig:
    return node_config({"log.dirs": str(tmp_path / "data")})


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "data" / ".lock"


@pytest.fixture
def holders() -> Iterator[list[Holder]]:
    made: list[Holder] = []
    yield made
    for each in made:
        each.close()


def test_the_command_line_of_a_process_is_found(lock: Path, holders: list[Holder]) -> None:
    holders.append(Holder(lock, "a-name-of-its-own"))

    assert "a-name-of-its-own" in processes._command_line(holders[0].process.pid)


def test_a_node_is_found_by_its_lock(config: NodeConfig, lock: Path, holders: list[Holder]) -> None:
    holders.append(Holder(lock, "millstream"))

    found = find_process(config)

    assert found == NodeProcess(holders[0].process.pid, str(lock))


def test_a_controller_alone_is_found_by_its_metadata_log(
    config: NodeConfig, lock: Path, holders: list[Holder]
) -> None:
    holders.append(Holder(lock.parent / "__cluster_metadata-0" / ".lock", "millstream"))

    found = find_process(config)

    assert found is not None
    assert found.pid == holders[0].process.pid


def test_another_program_is_left_alone(
    config: NodeConfig, lock: Path, holders: list[Holder], monkeypatch: pytest.MonkeyPatch
) -> None:
    holders.append(Holder(lock, "something else"))
    monkeypatch.setattr(processes, "_command_line", lambda pid: "java -jar kafka")

    with pytest.raises(KafkaStorageError, match="java -jar kafka: stop it in its own way"):
        find_process(config)

    lock.write_text("")
    with pytest.raises(KafkaStorageError, match="does not say its id"):
        find_process(config)


def test_stop_waits_and_says_so(
    lock: Path, holders: list[Holder], capsys: pytest.CaptureFixture[str]
) -> None:
    holders.append(Holder(lock, "millstream"))

    assert main(["server", "stop", "--data", str(lock.parent)]) == EXIT_OK

    printed = capsys.readouterr().out
    assert str(holders[0].process.pid) in printed
    assert printed.endswith("stopped\n")


def test_stop_gives_up_after_its_timeout(
    lock: Path, holders: list[Holder], capsys: pytest.CaptureFixture[str]
) -> None:
    holders.append(Holder(lock, "millstream", signals=2))

    arguments = ["server", "stop", "--data", str(lock.parent), "--timeout", "0.1"]
    assert main(arguments) == EXIT_FAILED
    assert "--force" in capsys.readouterr().err

    assert main([*arguments, "--force", "--json"]) == EXIT_OK
    assert capsys.readouterr().out == f'{{"stopped": {holders[0].process.pid}}}\n'


def test_status_says_who_runs(
    lock: Path, holders: list[Holder], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["server", "status", "--data", str(lock.parent)]
    assert main(arguments) == EXIT_NOT_RUNNING
    assert capsys.readouterr().out == f"not running\n{lock.parent}: not formatted\n"

    holders.append(Holder(lock, "millstream"))
    assert main(arguments) == EXIT_OK
    assert f"running, process {holders[0].process.pid}" in capsys.readouterr().out
    assert main([*arguments, "--json"]) == EXIT_OK
    assert f'"pid": {holders[0].process.pid}' in capsys.readouterr().out
