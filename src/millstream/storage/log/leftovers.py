"""What a crash leaves in a log's directory besides the log, and what becomes of it.

`loader` calls it first, before it opens a segment. Each kind of leftover has one outcome, and
doing it twice, or being interrupted in the middle, changes nothing about the end:

- `.tmp`, `.deleted` and `.cleaned` files go: nobody refers to them.
- A `.swap` segment was written whole by the cleaner. It takes the place of the segments it was made
  from, unless a `.cleaned` file at or below its offset shows that its set was not complete, or its
  content is damaged while the original is still there; then it goes.
- An index without its log goes.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.errors import CorruptMessage
from millstream.storage.file_names import (
    CLEANED,
    DELETED,
    LOG,
    OFFSET_INDEX,
    SNAPSHOT,
    SWAP,
    parse_segment_file_name,
    segment_file_name,
)
from millstream.storage.filesystem import TEMPORARY_SUFFIX
from millstream.storage.log.segment import LogSegment

if TYPE_CHECKING:
    from millstream.storage.file_names import SegmentFileName
    from millstream.storage.filesystem import FileStatus, FileSystem
    from millstream.storage.log.config import LogConfig

_logger = logging.getLogger(__name__)

_NONE: Final = 1 << 63


class _Found(NamedTuple):
    name: SegmentFileName
    status: FileStatus


def settle_leftovers(
    filesystem: FileSystem, directory: str, config: LogConfig, *, was_clean: bool
) -> list[FileStatus]:
    """Leave only whole segments, their indexes and snapshots in a log's directory; what is left.

    After a clean stop an index without its log is no leftover: a segment is missing. A directory
    without leftovers, the ordinary case, costs one scan.
    """
    cleanup = _Cleanup(filesystem, directory, was_clean=was_clean)
    found = []
    entries = filesystem.scan(directory)
    for status in entries:
        if status.name.endswith(TEMPORARY_SUFFIX):
            cleanup.remove(status.name)
        elif (name := parse_segment_file_name(status.name)) is not None:
            found.append(_Found(name, status))
    cleaned_from = min(
        (each.name.base_offset for each in found if each.name.suffix == CLEANED), default=_NONE
    )
    for each in found:
        is_unfinished_swap = each.name.suffix == SWAP and each.name.base_offset >= cleaned_from
        if each.name.suffix in (DELETED, CLEANED) or is_unfinished_swap:
            cleanup.remove(each.status.name)
    swaps = [
        each for each in found if each.name.suffix == SWAP and each.name.base_offset < cleaned_from
    ]
    plain = [each for each in found if not each.name.suffix]
    _complete_swaps(cleanup, config, swaps, plain)
    if cleanup.finish():
        entries = filesystem.scan(directory)
    cleanup.remove_orphan_indexes(entries)
    return filesystem.scan(directory) if cleanup.finish() else entries


def _complete_swaps(
    cleanup: _Cleanup, config: LogConfig, swaps: list[_Found], plain: list[_Found]
) -> None:
    """Finish what the cleaner began, segment by segment."""
    originals = {each.name.base_offset for each in plain if each.name.extension == LOG}
    bases = {each.name.base_offset for each in swaps if each.name.extension == LOG}
    for log in (each for each in swaps if each.name.extension == LOG):
        base_offset = log.name.base_offset
        end_offset, is_intact = _examine(cleanup, config, log)
        if not is_intact and base_offset in originals:
            _logger.warning(
                "%s/%s is damaged; the segments it was made from stay",
                cleanup.directory,
                log.status.name,
            )
            bases.discard(base_offset)
            continue
        for each in plain:
            # Producer snapshots too: they speak of the originals.
            if base_offset <= each.name.base_offset < max(end_offset, base_offset + 1):
                cleanup.remove(each.status.name)
        # The originals must be gone for good before the new one has their name.
        cleanup.finish()
    for each in swaps:
        if each.name.base_offset in bases:
            name = segment_file_name(each.name.base_offset, each.name.extension)
            cleanup.rename(each.status.name, name)
        else:
            cleanup.remove(each.status.name)


def _examine(cleanup: _Cleanup, config: LogConfig, log: _Found) -> tuple[int, bool]:
    """Where a swap segment ends, and whether every byte of it is right."""
    segment = LogSegment(
        cleanup.filesystem,
        cleanup.directory,
        log.name.base_offset,
        config,
        size=log.status.size,
        created_ms=log.status.modified_ms,
        suffix=SWAP,
    )
    end_offset, end_position = log.name.base_offset, 0
    try:
        for position, batch in segment.batches():
            batch.check_crc()
            end_offset, end_position = batch.last_offset + 1, position + batch.size
    except CorruptMessage:
        return end_offset, False
    finally:
        segment.release()
    return end_offset, end_position == log.status.size


class _Cleanup:
    """Removals and renames in one directory, made durable together."""

    def __init__(self, filesystem: FileSystem, directory: str, *, was_clean: bool) -> None:
        self._was_clean = was_clean
        self.filesystem = filesystem
        self.directory = directory
        self._has_changed = False

    def remove(self, name: str) -> None:
        _logger.info("%s: removing the leftover %s", self.directory, name)
        self.filesystem.remove(f"{self.directory}/{name}")
        self._has_changed = True

    def rename(self, old: str, new: str) -> None:
        _logger.info("%s: completing the swap of %s", self.directory, old)
        self.filesystem.rename(f"{self.directory}/{old}", f"{self.directory}/{new}")
        self._has_changed = True

    def remove_orphan_indexes(self, entries: list[FileStatus]) -> None:
        """Indexes whose log is not there."""
        names = [
            name
            for status in entries
            if (name := parse_segment_file_name(status.name)) is not None and not name.suffix
        ]
        logs = {name.base_offset for name in names if name.extension == LOG}
        for name in names:
            if name.extension not in (LOG, SNAPSHOT) and name.base_offset not in logs:
                if self._was_clean and name.extension == OFFSET_INDEX:
                    _logger.error(
                        "%s: the segment at %d is missing, though the log was closed in order; its "
                        "records are lost unless another replica or a backup has them",
                        self.directory,
                        name.base_offset,
                    )
                self.remove(segment_file_name(name.base_offset, name.extension))

    def finish(self) -> bool:
        """Bring the changes to disk; whether there were any."""
        has_changed, self._has_changed = self._has_changed, False
        if has_changed:
            self.filesystem.sync_directory(self.directory)
        return has_changed
