"""Taking directories for a node."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from millstream.errors import InconsistentClusterId, InvalidArgument, KafkaStorageError
from millstream.metadata.checkpoints import decode_checkpoint
from millstream.node.config import node_config
from millstream.node.formatting import (
    format_storage,
    random_uuid,
    read_bootstrap,
    storage_info,
    take_directories,
)
from millstream.raft.batches import voter_set
from millstream.raft.config import parse_initial_voters
from millstream.raft.voters import Endpoint, VoterSet
from millstream.testing.sim_filesystem import SimFileSystem
from millstream.types import Uuid

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
CONTROLLER = {"CONTROLLER": Endpoint("localhost", 9093)}


class Disk:
    def __init__(self, **given: str) -> None:
        self.filesystem = SimFileSystem(Random(1))
        self.given = {"log.dirs": "/a,/b", **{k.replace("_", "."): v for k, v in given.items()}}

    def format(self, cluster_id: str = CLUSTER, **options: Any) -> list[str]:
        return format_storage(
            node_config(self.given),
            self.filesystem,
            cluster_id=cluster_id,
            random=Random(2),
            wall_ms=1,
            controller_endpoints=CONTROLLER,
            **options,
        )

    def checkpoint(self, directory: str) -> Any:
        name = f"{directory}/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
        return decode_checkpoint(self.filesystem.read_bytes(name))


def test_every_directory_gets_an_owner_and_an_id_of_its_own() -> None:
    disk = Disk(node_id="5")

    assert disk.format() == ["/a", "/b"]

    info = storage_info(node_config(disk.given), disk.filesystem)
    assert info.unformatted == ()
    assert info.cluster_id == CLUSTER
    assert {meta.node_id for meta in info.metas.values()} == {5}
    assert len({meta.directory_id for meta in info.metas.values()}) == 2


def test_the_first_voter_is_this_node() -> None:
    disk = Disk()
    disk.format()

    checkpoint = disk.checkpoint("/a")

    meta = storage_info(node_config(disk.given), disk.filesystem).metas["/a"]
    assert checkpoint.kraft_version == 1
    (voter,) = voter_set(checkpoint.voters)
    assert (voter.id, voter.key.directory_id) == (1, meta.directory_id)
    assert voter.endpoints == CONTROLLER


def test_a_static_quorum_needs_no_voters_on_disk() -> None:
    disk = Disk(controller_quorum_voters="1@localhost:9093")
    disk.format()

    assert not disk.filesystem.exists("/a/__cluster_metadata-0")


def test_the_bootstrap_records_carry_the_features() -> None:
    disk = Disk()
    disk.format(metadata_version=25, features={"group.version": 0})

    bootstrap = read_bootstrap(node_config(disk.given), disk.filesystem)

    assert bootstrap.metadata_version == 25


def test_formatting_again_changes_nothing() -> None:
    disk = Disk()
    disk.format()
    before = disk.filesystem.read_bytes("/a/meta.properties")

    assert disk.format() == []

    assert disk.filesystem.read_bytes("/a/meta.properties") == before


def test_a_new_directory_joins_the_others() -> None:
    disk = Disk(log_dirs="/a")
    disk.format()
    disk.given["log.dirs"] = "/a,/b"

    assert disk.format() == ["/b"]


def test_directories_of_another_cluster_or_node_are_refused() -> None:
    disk = Disk()
    disk.format()

    with pytest.raises(InconsistentClusterId, match="/a belongs to cluster"):
        disk.format(random_uuid(Random(3)))
    disk.given["node.id"] = "9"
    with pytest.raises(KafkaStorageError, match="/a belongs to node 1, this is node 9"):
        disk.format()


def test_directories_of_two_clusters_are_refused() -> None:
    disk = Disk(log_dirs="/a")
    disk.format()
    disk.given["log.dirs"] = "/b"
    disk.format(random_uuid(Random(3)))
    disk.given["log.dirs"] = "/a,/b"

    with pytest.raises(KafkaStorageError, match="belong to several clusters"):
        _ = storage_info(node_config(disk.given), disk.filesystem).cluster_id


@pytest.mark.parametrize("cluster_id", ["", "my-cluster", "4L6g3nShT-eMCtK--X86s!"])
def test_a_cluster_id_that_is_no_uuid_is_refused(cluster_id: str) -> None:
    with pytest.raises(InvalidArgument, match="random-uuid"):
        Disk().format(cluster_id)


def test_a_random_uuid_is_one() -> None:
    assert str(Uuid.parse(random_uuid(Random(1)))) == random_uuid(Random(1))


def test_a_power_loss_at_any_moment_leaves_a_directory_that_can_be_formatted_or_is() -> None:
    operations = 0

    def count(*_: object) -> None:
        nonlocal operations
        operations += 1

    disk = Disk()
    disk.filesystem.before_operation = count
    disk.format()
    for moment in range(operations):
        disk = Disk()
        left = moment

        def lose_power(*_: object) -> None:
            nonlocal left
            if left == 0:
                raise OSError("power loss")
            left -= 1

        disk.filesystem.before_operation = lose_power
        with pytest.raises(KafkaStorageError, match="power loss"):
            disk.format()
        disk.filesystem.before_operation = None
        disk.filesystem = disk.filesystem.after_power_loss()

        disk.format()

        assert disk.checkpoint("/a").kraft_version == 1
        assert read_bootstrap(node_config(disk.given), disk.filesystem).metadata_version == 30


def test_the_first_voters_are_the_same_on_each_and_know_their_directories() -> None:
    listed = (
        "5@one:9093:JEXY6aqzQY-32P5TStzaFg,6@two:9093:MvDxzVmcRsaTz33bUuRU6A,"
        "7@three:9093:07R5amHmR32VDA6jHkGbTA"
    )
    voters = parse_initial_voters(listed, "CONTROLLER")
    disk = Disk(node_id="6")

    disk.format(initial_voters=voters)

    own = storage_info(node_config(disk.given), disk.filesystem).metas["/a"]
    assert str(own.directory_id) == "MvDxzVmcRsaTz33bUuRU6A"
    written = disk.checkpoint("/a").voters
    assert [each.voter_id for each in written.voters] == [5, 6, 7]


def test_a_node_that_joins_later_has_no_first_voters() -> None:
    disk = Disk(node_id="6")

    disk.format(initial_voters=VoterSet())

    assert not disk.filesystem.exists("/a/__cluster_metadata-0")


@pytest.mark.parametrize(
    ("listed", "problem"),
    [
        ("5@one:9093", "must be ID@HOST:PORT:DIRECTORY_ID"),
        ("5@one:99999:JEXY6aqzQY-32P5TStzaFg", "must be ID@HOST:PORT:DIRECTORY_ID"),
        ("5@one:9093:short", "the directory id of"),
        (
            "5@one:9093:JEXY6aqzQY-32P5TStzaFg,5@two:9093:MvDxzVmcRsaTz33bUuRU6A",
            "voter 5 occurs twice",
        ),
    ],
)
def test_first_voters_that_cannot_be(listed: str, problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        parse_initial_voters(listed, "CONTROLLER")


@pytest.mark.parametrize(
    "given",
    [
        {"controller_quorum_voters": "5@here:9093,6@there:9093"},
        {"controller_quorum_bootstrap_servers": "there:9999"},
        {"process_roles": "broker", "controller_quorum_bootstrap_servers": "there:9093"},
    ],
)
def test_a_node_that_others_are_named_to_makes_no_cluster_up(given: dict[str, str]) -> None:
    disk = Disk(node_id="5", **given)

    with pytest.raises(KafkaStorageError, match="belongs to a cluster with others"):
        take_directories(
            node_config(disk.given),
            disk.filesystem,
            random=Random(2),
            wall_ms=1,
            controller_endpoints=CONTROLLER,
        )

    assert not disk.filesystem.exists("/a/meta.properties")
