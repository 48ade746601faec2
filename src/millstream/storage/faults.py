"""Where the operating system's errors become ours, with the path and the cause.

`UnifiedLog` and `loader` wrap what they do to files in it; the manager asks it whether a disk is
merely full, which is no reason to take it offline; others ask it whether to try again later.
"""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from millstream.errors import KafkaStorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
_NOT_THE_DISKS_FAULT: Final = _FULL | _NO_DESCRIPTORS | {errno.ENOMEM, errno.EINTR}


@contextmanager
def storage_errors(directory: str, doing: str) -> Iterator[None]:
    """Turn an OSError into a KafkaStorageError that says which log, what it did, and why."""
    try:
        yield
    except OSError as error:
        raise storage_error(directory, doing, error) from error


def storage_error(directory: str, doing: str, cause: OSError) -> KafkaStorageError:
    """The same for a path where a context manager costs too much.

    The cause goes along whether the error is raised or only told: it says whether the disk is
    merely full.
    """
    problem = "the disk is full while {}" if cause.errno in _FULL else "{} failed"
    error = KafkaStorageError(f"{directory}: {problem.format(doing)} ({cause})")
    error.__cause__ = cause
    return error


def is_disk_full(error: BaseException) -> bool:
    """Whether an error says no more than that there is no room: the disk itself works."""
    cause = _system_error(error)
    return cause is not None and cause.errno in _FULL


def is_out_of_descriptors(error: BaseException) -> bool:
    """Whether an error says that a file could not be opened because too many are."""
    cause = _system_error(error)
    return cause is not None and cause.errno in _NO_DESCRIPTORS


def is_passing(error: BaseException) -> bool:
    """Whether what failed may work later as it is: no room, no descriptor, no memory."""
    cause = _system_error(error)
    return cause is not None and cause.errno in _NOT_THE_DISKS_FAULT


def is_disk_failure(error: BaseException) -> bool:
    """Whether an error says that the disk cannot be relied on any more.

    A full disk is none, nor is a process that has run out of descriptors or memory, nor an error
    that no system call caused, such as a file whose content is wrong.
    """
    cause = _system_error(error)
    return cause is not None and cause.errno not in _NOT_THE_DISKS_FAULT


def _system_error(error: BaseException) -> OSError | None:
    """The operating system's error behind another."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__
    return cause
