"""Where rows rest between the table and the batch of Spark that takes them.

A table's rows change; a batch that is done again after a failure must be the same batch. So the
reader writes the rows of a chunk to a file before Spark hears of it, names the file in the
offset that Spark keeps in its checkpoint, and removes it when the batch is done. `data_source`
calls it on the driver to write and on the executors to read: on a cluster the directory must be
one that all machines see, as that of the checkpoints.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.errors import ConnectorFailed
from millstream.spark.pipelines.connectors.durability import sync

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyarrow import fs

_ROWS_PER_BATCH = 8192


@dataclass(frozen=True, slots=True)
class StagingArea:
    """The staged chunks of one query, by number."""

    directory: str
    """A path, or an address that Arrow's file systems know (`s3://`, `gs://`, `hdfs://`)."""
    query: str
    """What the query calls itself; two queries of one source must not share files."""

    def path_of(self, number: int) -> str:
        """Where a chunk is."""
        return f"{self.directory.rstrip('/')}/{self.query}/{number:012d}.arrow"

    def write(self, number: int, table: pa.Table) -> None:
        """Keep a chunk. It is whole or not there; one that no offset names is replaced."""
        import pyarrow as pa

        files, path = _opened(self.path_of(number))
        files.create_dir(path.rpartition("/")[0], recursive=True)
        unfinished = path + ".unfinished"
        with files.open_output_stream(unfinished) as out:
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            with pa.ipc.new_stream(out, table.schema, options=options) as writer:
                writer.write_table(table, max_chunksize=_ROWS_PER_BATCH)
        is_local = files.type_name == "local"
        if is_local:
            sync(unfinished)
        files.move(unfinished, path)
        if is_local:
            sync(path.rpartition("/")[0])

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        """The rows of a chunk."""
        import pyarrow as pa

        files, path = _opened(self.path_of(number))
        try:
            opened = files.open_input_stream(path)
        except FileNotFoundError as missing:
            raise ConnectorFailed(
                f"the rows that an unfinished batch was made of are gone: {path} is missing. Put "
                "it back, or start with a new checkpoint, which imports the table from the start"
            ) from missing
        with opened, pa.ipc.open_stream(opened) as reader:
            yield from reader

    def discard_through(self, number: int) -> None:
        """Remove the chunks up to one: their batches are done."""
        from pyarrow import fs

        files, path = _opened(self.path_of(number))
        selector = fs.FileSelector(path.rpartition("/")[0], allow_not_found=True)
        for found in files.get_file_info(selector):
            name = found.base_name.removesuffix(".arrow")
            if name.isdigit() and int(name) <= number:
                files.delete_file(found.path)


def _opened(address: str) -> tuple[fs.FileSystem, str]:
    from pyarrow import fs

    if ":/" in address and not address.startswith("/"):
        files, path = fs.FileSystem.from_uri(address)
        return files, path
    return fs.LocalFileSystem(), address
