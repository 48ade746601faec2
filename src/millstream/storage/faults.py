"""Where the operating system's errors become ours, with the path and the cause.

`UnifiedLog` and `LogLoader` wrap what they do to files in it; the manager asks it whether a disk is
merely full, which is no reason to take it offline.
"""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from millstream.errors import KafkaStorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


@contextmanager
def storage_errors(directory: str, doing: str) -> Iterator[None]:
    """Turn an OSError into a KafkaStorageError that says which log, what it did, and why."""
    try:
        yield
    except OSError as error:
        raise storage_error(directory, doing, error) from error


def storage_error(directory: str, doing: str, cause: OSError) -> KafkaStorageError:
    """The same for a path where a context manager costs too much; raise it `from` the cause."""
    if cause.errno in _FULL:
        return KafkaStorageError(f"{directory}: the disk is full while {doing} ({cause})")
    return KafkaStorageError(f"{directory}: {doing} failed ({cause})")


def is_disk_full(error: BaseException) -> bool:
    """Whether an error says no more than that there is no room: the disk itself works."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in _FULL:
            return True
        cause = cause.__cause__
    return False
