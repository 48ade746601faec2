"""The process that runs a node on some directories, seen from outside: which it is, and its end.

`millstream server stop` and `status` ask. A running node holds a lock on its directories and has
left its process id in the lock file; both are looked at before anybody is sent a signal.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.errors import KafkaStorageError
from millstream.metadata.metadata_log import METADATA_PARTITION
from millstream.storage.filesystem import LOCK_FILE_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.clock import Clock
    from millstream.node.config import NodeConfig

_POLL_MS: Final = 50
_FORCED_MS: Final = 2000
"""How long a process that was told to stop at once may take before it is killed."""


@dataclass(frozen=True, slots=True)
class NodeProcess:
    """A process that runs a node."""

    pid: int
    lock_path: str

    def is_running(self) -> bool:
        """Whether it still holds its directory."""
        return _is_locked(self.lock_path)


def find_process(config: NodeConfig) -> NodeProcess | None:
    """Who runs on the directories of a node; None if nobody does.

    KafkaStorageError if somebody does who is no node of Millstream, or does not say who it is.
    """
    holders = (find_holder(path) for path in _lock_paths(config))
    return next((each for each in holders if each is not None), None)


def find_holder(path: str) -> NodeProcess | None:
    """Who has a lock file, under the same rules; never ask for one that this process has."""
    if not _is_locked(path):
        return None
    directory = str(Path(path).parent)
    text = Path(path).read_text(encoding="utf-8", errors="replace").strip()
    if not (text.isascii() and text.isdecimal()):
        raise KafkaStorageError(
            f"{directory} is in use by a process that does not say its id, such as Apache "
            "Kafka: stop it in its own way"
        )
    command = _command_line(int(text))
    if "millstream" not in command:
        raise KafkaStorageError(
            f"{directory} is in use by process {text}, which is no `millstream server` but "
            f"{command or 'of another machine or user'}: stop it in its own way"
        )
    return NodeProcess(int(text), path)


def stop_processes(
    processes: Sequence[NodeProcess],
    *,
    timeout_ms: int,
    force: bool,
    clock: Clock,
    sleep_ms: Callable[[int], None],
    asked_by: signal.Signals = signal.SIGTERM,
) -> list[NodeProcess]:
    """Ask processes to stop, all at the same time, and wait for them; those that still run.

    With `force` those that take longer are told to stop at once, and then killed.
    """
    steps = [(asked_by, timeout_ms)]
    if force:
        steps += [(signal.SIGTERM, _FORCED_MS), (signal.SIGKILL, _FORCED_MS)]
    left = list(processes)
    for number, limit_ms in steps:
        for each in left:
            _send(each, number)
        deadline_ms = clock.monotonic_ms() + limit_ms
        left = [each for each in left if not _wait(each, deadline_ms, clock, sleep_ms)]
        if not left:
            break
    return left


def _send(process: NodeProcess, number: signal.Signals) -> None:
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise KafkaStorageError(
            f"process {process.pid} belongs to another user: stop it as that user or as root"
        ) from error


def _wait(
    process: NodeProcess, deadline_ms: int, clock: Clock, sleep_ms: Callable[[int], None]
) -> bool:
    while process.is_running():
        if clock.monotonic_ms() >= deadline_ms:
            return False
        sleep_ms(_POLL_MS)
    return True


def _lock_paths(config: NodeConfig) -> list[str]:
    """The lock files of a node: of its log directories, or of a controller's metadata log."""
    paths = [f"{directory}/{LOCK_FILE_NAME}" for directory in config.directories]
    return [*paths, f"{config.metadata_dir}/{METADATA_PARTITION}/{LOCK_FILE_NAME}"]


def _is_locked(path: str) -> bool:
    """Whether another process has a lock; to find out, this one takes it for a moment."""
    try:
        file = Path(path).open("rb")  # noqa: SIM115 - Closed below; a failure to open is an answer.
    except FileNotFoundError:
        return False
    except PermissionError as error:
        raise KafkaStorageError(f"{path} may not be read by this user") from error
    with file:
        try:
            fcntl.lockf(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _command_line(pid: int) -> str:
    """How a process was started; empty if that cannot be found out."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    with suppress(OSError):
        asked = ["ps", "-p", str(pid), "-o", "command="]
        return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return ""
