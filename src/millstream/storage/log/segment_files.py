"""The files of one segment under their common name: open, rename, remove.

`LogSegment` and its indexes find their files through it. It knows names, not content.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.storage.file_names import LOG, SEGMENT_EXTENSIONS, segment_file_name

if TYPE_CHECKING:
    from millstream.storage.filesystem import File, FileSystem
    from millstream.storage.log.config import LogConfig


class SegmentFiles:
    """Where the files of a segment are; a suffix says what has become of them."""

    __slots__ = ("_base_offset", "_directory", "_filesystem", "_suffix", "is_name_synced")

    def __init__(
        self, filesystem: FileSystem, directory: str, base_offset: int, suffix: str
    ) -> None:
        self.is_name_synced = True
        self._filesystem = filesystem
        self._directory = directory
        self._base_offset = base_offset
        self._suffix = suffix

    @property
    def log_path(self) -> str:
        """The path of the `.log` file."""
        return self.path(LOG)

    def path(self, extension: str) -> str:
        """The path of one of the files, whether it exists or not."""
        name = segment_file_name(self._base_offset, extension, self._suffix)
        return f"{self._directory}/{name}"

    def create_log(self, config: LogConfig) -> File:
        """A new log file, with room reserved if the topic asks for it; files of its name go.

        Where there is no room for it there is no file afterwards.
        """
        self.remove()
        self.is_name_synced = False
        file = self._filesystem.open(self.log_path, create=True)
        if config.preallocate:
            try:
                file.allocate(config.segment_size_max)
            except OSError:
                self.remove()
                raise
        return file

    def open_log(self) -> File:
        """The log file, which exists."""
        return self._filesystem.open(self.log_path)

    def sync_name(self) -> None:
        """Make the files' names durable, once."""
        if not self.is_name_synced:
            self._filesystem.sync_directory(self._directory)
            self.is_name_synced = True

    def change_suffix(self, suffix: str) -> None:
        """Rename all the files there are; the caller syncs the directory."""
        old_paths = {extension: self.path(extension) for extension in SEGMENT_EXTENSIONS}
        self._suffix = suffix
        for extension, old_path in old_paths.items():
            if self._filesystem.exists(old_path):
                self._filesystem.rename(old_path, self.path(extension))

    def remove(self) -> None:
        """Remove all the files there are."""
        for extension in SEGMENT_EXTENSIONS:
            self._filesystem.remove(self.path(extension))

    def move_to(self, directory: str) -> None:
        """Follow a log whose directory was renamed."""
        self._directory = directory
