"""Puts a rewritten segment in the place of those it was made from, so that a crash cannot hurt.

`UnifiedLog.replace_segments` calls it, on the owner's thread. At every moment the names on disk
tell `leftovers` which of the two is the log:

1. `.cleaned` becomes `.swap`, and the directory is synced: from now on the new segment counts.
2. The old segments become `.deleted`, and the directory is synced: none of them may come back
   beside the new one under its plain name.
3. `.swap` becomes the plain name. Whether that is on disk does not matter: what a crash undoes of
   it, the next start does again.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from millstream.storage.file_names import (
    CLEANED,
    DELETED,
    SEGMENT_EXTENSIONS,
    SWAP,
    segment_file_name,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.storage.log.local_log import LocalLog
    from millstream.storage.log.segment import LogSegment


def swap_segments(local: LocalLog, cleaned: LogSegment, replaced: Sequence[LogSegment]) -> None:
    """Replace neighbouring segments by one whose files are written, synced and `.cleaned`.

    An error before the new segment counts leaves the log as it was.
    """
    assert cleaned.base_offset == replaced[0].base_offset
    try:
        cleaned.change_suffix(SWAP)
        _sync_names(local)
    except OSError:
        with suppress(OSError):
            _remove_files(local, cleaned.base_offset)
        raise
    cleaned.update_config(local.config)
    local.segments.remove(replaced)
    local.segments.add(cleaned)
    for segment in replaced:
        segment.change_suffix(DELETED)
    _sync_names(local)
    cleaned.change_suffix("")
    local.names_version += 1


def _remove_files(local: LocalLog, base_offset: int) -> None:
    """For good, or the next start would complete the swap, whatever has happened until then."""
    for suffix in (SWAP, CLEANED):
        for extension in SEGMENT_EXTENSIONS:
            name = segment_file_name(base_offset, extension, suffix)
            local.filesystem.remove(f"{local.directory}/{name}")
    _sync_names(local)


def _sync_names(local: LocalLog) -> None:
    local.names_version += 1
    local.sync_names()
