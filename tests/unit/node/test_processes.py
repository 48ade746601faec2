"""Who may be signalled, in which order, and what is said when that cannot be."""

from __future__ import annotations

import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from millstream.errors import KafkaStorageError
from millstream.node import processes
from millstream.node.config import node_config
from millstream.node.main import EXIT_FAILED, EXIT_USAGE, main
from millstream.node.processes import NodeProcess, find_process, stop_processes

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.node.config import NodeConfig


@pytest.fixture
def config(tmp_path: Path) -> NodeConfig:
    return node_config({"log.dirs": str(tmp_path / "data")})


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "data" / ".lock"


class Clock:
    """Time passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now_ms = 0

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    async def sleep_until(self, deadline_ms: int) -> None:
        raise AssertionError("nobody sleeps so")

    def sleep_ms(self, ms: int) -> None:
        self.now_ms += ms


def test_nobody_runs_where_there_is_no_lock(config: NodeConfig, lock: Path) -> None:
    assert find_process(config) is None

    lock.parent.mkdir()
    lock.write_text("1\n")  # Left by one that has gone: the lock went with it.
    assert find_process(config) is None


def test_a_process_without_proc_is_asked_for_by_ps(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bytes:
        raise OSError

    monkeypatch.setattr("pathlib.Path.read_bytes", fail)
    answer = subprocess.CompletedProcess([], 0, stdout="millstream server start\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: answer)
    assert processes._command_line(1) == "millstream server start"

    def missing(*_: object, **__: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(subprocess, "run", missing)
    assert processes._command_line(1) == ""


class Stubborn:
    """A process that ends after some signals, seen through the functions that ask."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, needs: int) -> None:
        self.sent: list[signal.Signals] = []
        self._needs = needs
        monkeypatch.setattr("os.kill", lambda _, number: self.sent.append(number))
        monkeypatch.setattr(processes, "_is_locked", lambda _: len(self.sent) < self._needs)


@pytest.mark.parametrize(
    ("needs", "force", "is_stopped", "sent"),
    [
        (1, False, True, [signal.SIGTERM]),
        (2, False, False, [signal.SIGTERM]),
        (2, True, True, [signal.SIGTERM, signal.SIGTERM]),
        (3, True, True, [signal.SIGTERM, signal.SIGTERM, signal.SIGKILL]),
        (4, True, False, [signal.SIGTERM, signal.SIGTERM, signal.SIGKILL]),
    ],
)
def test_force_comes_after_asking(
    monkeypatch: pytest.MonkeyPatch,
    needs: int,
    force: bool,
    is_stopped: bool,
    sent: list[signal.Signals],
) -> None:
    stubborn, clock = Stubborn(monkeypatch, needs=needs), Clock()

    left = stop_processes(
        [NodeProcess(1, "")], timeout_ms=1000, force=force, clock=clock, sleep_ms=clock.sleep_ms
    )
    assert is_stopped == (not left)
    assert stubborn.sent == sent


@pytest.mark.parametrize("error", [ProcessLookupError, PermissionError])
def test_a_process_that_cannot_be_signalled(
    monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    def kill(*_: object) -> None:
        raise error

    monkeypatch.setattr("os.kill", kill)
    monkeypatch.setattr(processes, "_is_locked", lambda _: False)
    clock = Clock()

    def stop() -> bool:
        return not stop_processes(
            [NodeProcess(1, "")], timeout_ms=1, force=False, clock=clock, sleep_ms=clock.sleep_ms
        )

    if error is PermissionError:
        with pytest.raises(KafkaStorageError, match="another user"):
            stop()
    else:
        assert stop()


def test_a_lock_that_may_not_be_read_is_told(
    config: NodeConfig, lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr("pathlib.Path.open", refuse)

    with pytest.raises(KafkaStorageError, match="may not be read"):
        find_process(config)


def test_stop_without_a_server_says_how_to_name_one(
    lock: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["server", "stop", "--data", str(lock.parent)]) == EXIT_FAILED
    assert "--data" in capsys.readouterr().err


@pytest.mark.parametrize("timeout", ["0", "-1", "soon", "nan"])
def test_a_timeout_is_a_number_of_seconds(timeout: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["server", "stop", "--timeout", timeout])

    assert caught.value.code == EXIT_USAGE
