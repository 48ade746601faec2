"""Where a full disk, or a process without descriptors, becomes raft's `LogStalled`.

The metadata log and the `quorum-state` file wrap what raft may ask for again in it. Errors that
say more about the disk stay what they are.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from millstream.errors import KafkaStorageError
from millstream.raft.ports import LogStalled
from millstream.storage.faults import is_passing, storage_errors

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def stalls(directory: str, doing: str) -> Iterator[None]:
    """Turn an error that passes into `LogStalled`, and any other of the system into ours."""
    try:
        with storage_errors(directory, doing):
            yield
    except KafkaStorageError as error:
        if not is_passing(error):
            raise
        raise LogStalled(str(error)) from error
