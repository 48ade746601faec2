"""The directory of a pipeline that runs: who runs it, how it is, and whether it is to stop.

    storage/
    ├── lock           held by the process that runs the pipeline as long as it lives; says who
    ├── status.json    how every query is, written anew whenever that changes
    ├── stop           somebody asks the process to stop
    └── checkpoints/   one directory for each query; Spark's, with its state

`runner` writes, the commands `status` and `stop` read, in another process. It has no Spark.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from millstream.errors import MillstreamError, PipelineAlreadyRunning

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOCK: Final = "lock"
_STATUS: Final = "status.json"
_STOP: Final = "stop"
ENDS_OF_RUNS: Final = frozenset({"finished", "stopped", "failed"})
"""The states of a status after which nothing runs; any other was left by a process that died."""
_TRIES: Final = 5
_TRY_AGAIN_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that runs the pipeline."""

    pid: int
    host: str


class StateDirectory:
    """One pipeline's directory."""

    def __init__(self, path: str | Path, checkpoints: str | None = None) -> None:
        self.path = Path(path)
        self._checkpoints = checkpoints

    def checkpoint(self, query: str) -> str:
        """Where Spark keeps the progress and the state of a query."""
        if self._checkpoints is not None:
            return f"{self._checkpoints.rstrip('/')}/{query}"
        return str(self.path / "checkpoints" / query)

    # For the process that runs.

    @contextmanager
    def held(self) -> Iterator[None]:
        """Take the right to run it, or PipelineAlreadyRunning. An old request to stop is over."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / _LOCK).open("a", encoding="utf-8") as lock:
            if not _try_to_own(lock):
                raise self._already_running()
            lock.truncate(0)
            lock.write(json.dumps(asdict(Owner(os.getpid(), os.uname().nodename))))
            lock.flush()
            (self.path / _STOP).unlink(missing_ok=True)
            try:
                yield
            finally:
                (self.path / _STOP).unlink(missing_ok=True)

    def write_status(self, status: dict[str, Any]) -> None:
        """Say how it is; readers see the old or the new, never a half."""
        draft = self.path / f"{_STATUS}.new"
        draft.write_text(json.dumps(status, indent=1), encoding="utf-8")
        draft.replace(self.path / _STATUS)

    @property
    def is_stop_requested(self) -> bool:
        """Whether somebody asked for the end."""
        return (self.path / _STOP).exists()

    # For other processes.

    def read_status(self) -> dict[str, Any] | None:
        """How it was said to be at last; None if it never ran here."""
        try:
            status: dict[str, Any] = json.loads((self.path / _STATUS).read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError as error:
            raise MillstreamError(f"{self.path / _STATUS} is damaged: {error}") from error
        return status

    @property
    def is_running(self) -> bool:
        """Whether a process runs the pipeline now."""
        try:
            with (self.path / _LOCK).open("r") as lock:
                return not _try_lock(lock, fcntl.LOCK_SH)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def owner(self) -> Owner | None:
        """Who runs the pipeline now; None if nobody does, or has not said so yet."""
        if not self.is_running:
            return None
        try:
            return Owner(**json.loads((self.path / _LOCK).read_text(encoding="utf-8")))
        except (OSError, TypeError, ValueError):
            return None

    def require_free(self) -> None:
        """PipelineAlreadyRunning if a process runs the pipeline now."""
        if self.is_running:
            raise self._already_running()

    def _already_running(self) -> PipelineAlreadyRunning:
        owner = self.owner()
        return PipelineAlreadyRunning(
            f"process {'unknown' if owner is None else owner.pid} runs this pipeline in "
            f"{self.path}; `millstream pipeline stop` ends it"
        )

    def request_stop(self) -> None:
        """Ask the process to stop when its batches are done."""
        (self.path / _STOP).touch()


def _try_to_own(lock: IO[str]) -> bool:
    """A process that only looks has the lock too, for a moment."""
    for _ in range(_TRIES):
        if _try_lock(lock, fcntl.LOCK_EX):
            return True
        time.sleep(_TRY_AGAIN_S)
    return False


def _try_lock(lock: IO[str], kind: int) -> bool:
    """The system lets go of the lock when its process ends, however that happens."""
    try:
        fcntl.flock(lock.fileno(), kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
