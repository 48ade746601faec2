"""Who owns a directory, which topic a log is of, and how the last process left."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from millstream.errors import InconsistentClusterId, KafkaStorageError
from millstream.storage.manager.meta_properties import (
    CleanShutdown,
    MetaProperties,
    read_clean_shutdown,
    read_meta_properties,
    read_partition_metadata,
    remove_clean_shutdown,
    require_one_owner,
    write_clean_shutdown,
    write_meta_properties,
    write_partition_metadata,
)
from millstream.testing.sim_filesystem import SimFileSystem
from millstream.types import Uuid

if TYPE_CHECKING:
    from millstream.storage.filesystem import FileSystem

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
DIRECTORY = Uuid(bytes(range(16)))

# As the format tool of Apache Kafka leaves it.
KAFKA_FILE = f"""#
#Sun Nov 15 23:09:58 UTC 2026
node.id=1
directory.id={DIRECTORY}
version=1
cluster.id={CLUSTER}
"""


def put(filesystem: FileSystem, path: str, text: str) -> None:
    filesystem.open(path, create=True).pwrite(text.encode(), 0)


def test_a_file_of_apache_kafka_is_read(filesystem: FileSystem, directory: str) -> None:
    put(filesystem, f"{directory}/meta.properties", KAFKA_FILE)

    assert read_meta_properties(filesystem, directory) == MetaProperties(CLUSTER, 1, DIRECTORY)


def test_what_is_written_reads_back(filesystem: FileSystem, directory: str) -> None:
    meta = MetaProperties("odd=id:with#all!of\\it", 7, DIRECTORY)

    write_meta_properties(filesystem, directory, meta)

    assert read_meta_properties(filesystem, directory) == meta
    text = filesystem.read_bytes(f"{directory}/meta.properties").decode()
    assert "version=1\n" in text
    assert "node.id=7\n" in text


def test_a_directory_nobody_took_has_no_owner(filesystem: FileSystem, directory: str) -> None:
    assert read_meta_properties(filesystem, directory) is None


def test_version_0_of_old_clusters_is_read(filesystem: FileSystem, directory: str) -> None:
    put(filesystem, f"{directory}/meta.properties", "version=0\nbroker.id=3\ncluster.id=abc\n")

    assert read_meta_properties(filesystem, directory) == MetaProperties("abc", 3, version=0)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "version is missing"),
        ("version=2\n", "version 2 is not known"),
        ("version=1\nnode.id=1\n", "cluster.id is missing"),
        ("version=1\ncluster.id=a\n", "node.id is missing"),
        ("version=1\ncluster.id=a\nnode.id=x\n", "node.id is 'x', not a number"),
        ("version=1\ncluster.id=a\nnode.id=1\ndirectory.id=!!\n", "directory.id is not a Uuid"),
    ],
)
def test_an_unreadable_file_is_an_error_that_says_what_is_wrong(
    filesystem: FileSystem, directory: str, text: str, complaint: str
) -> None:
    put(filesystem, f"{directory}/meta.properties", text)

    with pytest.raises(KafkaStorageError, match=complaint):
        read_meta_properties(filesystem, directory)


def test_directories_of_this_node_are_accepted() -> None:
    metas = {
        "/a": MetaProperties("c", 1, DIRECTORY),
        "/b": MetaProperties("c", 1, Uuid(bytes(15) + b"z")),
        "/old": MetaProperties(None, None, version=0),
    }

    require_one_owner(metas, "c", 1)


def test_a_directory_of_another_cluster_or_node_is_refused() -> None:
    with pytest.raises(InconsistentClusterId, match="/a belongs to cluster other"):
        require_one_owner({"/a": MetaProperties("other", 1)}, "c", 1)
    with pytest.raises(KafkaStorageError, match="/a belongs to node 2, this is node 1"):
        require_one_owner({"/a": MetaProperties("c", 2)}, "c", 1)


def test_a_copied_directory_is_refused() -> None:
    metas = {name: MetaProperties("c", 1, DIRECTORY) for name in ("/a", "/b")}

    with pytest.raises(KafkaStorageError, match="one is a copy of the other"):
        require_one_owner(metas, "c", 1)


def test_the_topic_id_is_written_as_kafka_writes_it(filesystem: FileSystem, directory: str) -> None:
    assert read_partition_metadata(filesystem, directory) is None

    write_partition_metadata(filesystem, directory, DIRECTORY)

    assert filesystem.read_bytes(f"{directory}/partition.metadata") == (
        b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\ncrc: d9c908eb"
    )
    assert read_partition_metadata(filesystem, directory) == DIRECTORY


@pytest.mark.parametrize(
    "text",
    [
        "version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw",
        "version: 1\n",
        "topic_id: AAECAwQFBgcICQoLDA0ODw",
        "version: 0\ntopic_id: not an id of any topic",
        f"version: 0\ntopic_id: {Uuid.ZERO}",
        "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0OEw\ncrc: d9c908eb",
        "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\ncrc: d9c908ec",
    ],
)
def test_unreadable_partition_metadata_is_an_error(
    filesystem: FileSystem, directory: str, text: str
) -> None:
    put(filesystem, f"{directory}/partition.metadata", text)

    with pytest.raises(KafkaStorageError, match=r"partition\.metadata"):
        read_partition_metadata(filesystem, directory)


@pytest.mark.parametrize("end", ["", "\n", "\ncr", "\ncrc: ", "\ncrc: d9c9", "\ncrc: d9\0\0\0"])
def test_a_topic_id_without_a_whole_checksum_is_believed(
    filesystem: FileSystem, directory: str, end: str
) -> None:
    put(
        filesystem,
        f"{directory}/partition.metadata",
        f"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw{end}",
    )

    assert read_partition_metadata(filesystem, directory) == DIRECTORY


@pytest.mark.parametrize(
    "text", ["", "\0" * 43, "version: 0\n", "version: 0\ntopic_id: AAECA", "vers\0\0\0"]
)
def test_partition_metadata_that_a_power_loss_cut_is_as_good_as_none(
    filesystem: FileSystem, directory: str, text: str
) -> None:
    put(filesystem, f"{directory}/partition.metadata", text)

    assert read_partition_metadata(filesystem, directory) is None


def test_the_clean_shutdown_marker_comes_and_goes(filesystem: FileSystem, directory: str) -> None:
    assert read_clean_shutdown(filesystem, directory) is None

    write_clean_shutdown(filesystem, directory, 12)

    assert filesystem.read_bytes(f"{directory}/.kafka_cleanshutdown") == (
        b'{"version":0,"brokerEpoch":12}'
    )
    assert read_clean_shutdown(filesystem, directory) == CleanShutdown(12)
    remove_clean_shutdown(filesystem, directory)
    remove_clean_shutdown(filesystem, directory)
    assert read_clean_shutdown(filesystem, directory) is None


@pytest.mark.parametrize("seed", range(8))
def test_a_marker_whose_remover_was_killed_does_not_come_back(seed: int) -> None:
    filesystem = SimFileSystem(Random(seed))
    filesystem.make_directory("/data")
    filesystem.sync_directory("/")
    write_clean_shutdown(filesystem, "/data", 12)
    filesystem.remove("/data/.kafka_cleanshutdown")
    filesystem = filesystem.after_kill()

    remove_clean_shutdown(filesystem, "/data")

    assert read_clean_shutdown(filesystem.after_power_loss(), "/data") is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"brokerEpoch":"x"}'])
def test_a_marker_without_epoch_still_says_the_stop_was_clean(
    filesystem: FileSystem, directory: str, text: str
) -> None:
    put(filesystem, f"{directory}/.kafka_cleanshutdown", text)

    assert read_clean_shutdown(filesystem, directory) == CleanShutdown(None)
