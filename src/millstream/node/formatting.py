"""Taking directories for a node: what `millstream storage format|info|random-uuid` does.

A node that finds all its directories empty formats them itself, as a cluster of its own. Files are
those of Apache Kafka: `meta.properties` in each directory; in the metadata directory
`bootstrap.checkpoint` with the first records of the cluster, and the snapshot 0-0 with the first
voters, if the quorum is a dynamic one.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.errors import InvalidArgument, KafkaStorageError
from millstream.metadata.bootstrap import (
    BOOTSTRAP_FILE_NAME,
    bootstrap_metadata,
    decode_bootstrap,
    encode_bootstrap,
)
from millstream.metadata.checkpoints import encode_checkpoint
from millstream.metadata.features import METADATA_VERSION_LATEST
from millstream.metadata.metadata_log import METADATA_PARTITION
from millstream.metadata.snapshot_files import BOOTSTRAP_SNAPSHOT, write_snapshot_file
from millstream.node.host_name import own_host_name
from millstream.raft.batches import voters_record
from millstream.raft.config import parse_servers, parse_voters
from millstream.raft.voters import (
    KRAFT_VERSION_DYNAMIC,
    LOCAL_SUPPORTED_VERSIONS,
    Endpoint,
    ReplicaKey,
    Voter,
    VoterSet,
)
from millstream.storage.faults import storage_errors
from millstream.storage.file_names import parse_partition_directory_name
from millstream.storage.filesystem import directory_of, write_atomically
from millstream.storage.manager.meta_properties import (
    MetaProperties,
    read_meta_properties,
    require_one_owner,
    write_meta_properties,
)
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from millstream.metadata.bootstrap import BootstrapMetadata
    from millstream.node.config import NodeConfig
    from millstream.protocol.message import Message
    from millstream.storage.filesystem import FileSystem

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StorageInfo:
    """Whose a node's directories are."""

    metas: Mapping[str, MetaProperties]
    """By directory; those without `meta.properties` are absent."""
    unformatted: tuple[str, ...]

    @property
    def cluster_id(self) -> str | None:
        """The cluster that they belong to; None if nobody's."""
        ids = {meta.cluster_id for meta in self.metas.values() if meta.cluster_id is not None}
        if len(ids) > 1:
            listed = ", ".join(f"{path} to {meta.cluster_id}" for path, meta in self.metas.items())
            raise KafkaStorageError(f"the directories belong to several clusters: {listed}")
        return ids.pop() if ids else None


def random_uuid(random: Random) -> str:
    """A new cluster id."""
    return str(Uuid.random(random))


def storage_info(config: NodeConfig, filesystem: FileSystem) -> StorageInfo:
    """Look at a node's directories."""
    metas, unformatted = {}, []
    for path in config.directories:
        with storage_errors(path, "reading meta.properties"):
            meta = read_meta_properties(filesystem, path)
        if meta is None:
            unformatted.append(path)
        else:
            metas[path] = meta
    return StorageInfo(metas, tuple(unformatted))


def configured_controllers(config: NodeConfig) -> dict[str, Endpoint]:
    """Where the settings have the controller of this node listen, by listener.

    A port of 0 stands for one that is only known once the node runs.
    """
    return {
        each.listener_name: Endpoint(
            own_host_name() if each.is_everywhere else each.host, each.port
        )
        for each in config.network.endpoints
        if each.listener_name in config.network.controller_names
    }


def format_storage(
    config: NodeConfig,
    filesystem: FileSystem,
    *,
    cluster_id: str,
    random: Random,
    wall_ms: int,
    controller_endpoints: Mapping[str, Endpoint],
    metadata_version: int = METADATA_VERSION_LATEST,
    features: Mapping[str, int] | None = None,
    initial_voters: VoterSet | None = None,
    scram: Sequence[Message] = (),
) -> list[str]:
    """Take the directories that are nobody's for this node; which those were.

    The first voters of a dynamic quorum are `initial_voters`, the same on each of them; without,
    this node alone, which is found at `controller_endpoints`. An empty set: this node joins later.
    `scram` are the first credentials. `meta.properties` comes last in each directory, so that a
    crash leaves one that is formatted again.
    """
    info = storage_info(config, filesystem)
    node_id = config.process.node_id
    _check_cluster_id(cluster_id)
    require_one_owner(info.metas, cluster_id, node_id)
    bootstrap = bootstrap_metadata(
        metadata_version, features=features, records=scram, source="format"
    )
    own = None if initial_voters is None else initial_voters.get(node_id)
    for path in info.unformatted:
        directory_id = Uuid.random(random)
        if path == config.metadata_dir and own is not None:
            directory_id = own.key.directory_id
        with storage_errors(path, "formatting"):
            filesystem.make_directory(path)
            filesystem.sync_directory(directory_of(path))
            if path == config.metadata_dir:
                data = encode_bootstrap(bootstrap, wall_ms)
                write_atomically(filesystem, f"{path}/{BOOTSTRAP_FILE_NAME}", data)
                voters = initial_voters
                if voters is None and config.is_controller and not config.quorum.voters:
                    key = ReplicaKey(node_id, directory_id)
                    voters = VoterSet([Voter(key, controller_endpoints, LOCAL_SUPPORTED_VERSIONS)])
                if voters is not None and voters.get(node_id) is not None:
                    _write_voters(filesystem, path, voters, wall_ms)
            meta = MetaProperties(cluster_id, node_id, directory_id)
            write_meta_properties(filesystem, path, meta)
    return list(info.unformatted)


def take_directories(
    config: NodeConfig,
    filesystem: FileSystem,
    *,
    random: Random,
    wall_ms: int,
    controller_endpoints: Mapping[str, Endpoint],
) -> tuple[str, Uuid]:
    """What a node does at its start: see whose the directories are, take them if nobody's.

    The cluster's id, and that of the metadata directory.
    """
    info = storage_info(config, filesystem)
    if info.metas and info.unformatted:
        raise KafkaStorageError(
            f"{', '.join(info.unformatted)} has no meta.properties while others have: is the "
            "disk mounted? If it is new, format it with `millstream storage format`"
        )
    if info.unformatted:
        _require_empty(filesystem, info.unformatted)
        _require_own_cluster(config, controller_endpoints)
        cluster_id = random_uuid(random)
        format_storage(
            config,
            filesystem,
            cluster_id=cluster_id,
            random=random,
            wall_ms=wall_ms,
            controller_endpoints=controller_endpoints,
        )
        listed = ", ".join(info.unformatted)
        _logger.info("formatted %s for the new cluster %s", listed, cluster_id)
        info = storage_info(config, filesystem)
    if info.cluster_id is None:
        raise KafkaStorageError(
            f"{config.metadata_dir}/meta.properties names no cluster: format the directory with "
            "`millstream storage format`"
        )
    require_one_owner(info.metas, info.cluster_id, config.process.node_id)
    return info.cluster_id, info.metas[config.metadata_dir].directory_id or Uuid.ZERO


def read_bootstrap(config: NodeConfig, filesystem: FileSystem) -> BootstrapMetadata:
    """The first records of the cluster; the defaults for directories of older software."""
    path = f"{config.metadata_dir}/{BOOTSTRAP_FILE_NAME}"
    with storage_errors(path, "reading the bootstrap records"):
        if not filesystem.exists(path):
            return bootstrap_metadata()
        return decode_bootstrap(filesystem.read_bytes(path), path)


def _require_empty(filesystem: FileSystem, paths: tuple[str, ...]) -> None:
    for path in paths:
        for status in filesystem.scan(path) if filesystem.exists(path) else ():
            parsed = parse_partition_directory_name(status.name)
            # The metadata log may be what a crash while formatting left.
            if parsed is not None and status.name != METADATA_PARTITION:
                raise KafkaStorageError(
                    f"{path} has logs ({status.name}) but no meta.properties: it is not taken "
                    "for a new cluster. Restore the file or give another directory"
                )


def _require_own_cluster(config: NodeConfig, own: Mapping[str, Endpoint]) -> None:
    """A node that others are named to never makes a cluster up: it would be another one."""
    voters = set(parse_voters(config.quorum.voters, "").ids) - {config.process.node_id}
    own_ports = {each.port for each in own.values()}
    servers = {each.port for each in parse_servers(config.quorum.bootstrap_servers)} - own_ports
    if voters or servers or not config.is_controller:
        raise KafkaStorageError(
            f"{', '.join(config.directories)} is not formatted, and this node belongs to a cluster "
            "with others: format it with `millstream storage format --cluster-id ID`, with the "
            "same id on every node"
        )


def _write_voters(filesystem: FileSystem, path: str, voters: VoterSet, wall_ms: int) -> None:
    directory = f"{path}/{METADATA_PARTITION}"
    filesystem.make_directory(directory)
    filesystem.sync_directory(path)
    pieces = encode_checkpoint(
        (),
        epoch=BOOTSTRAP_SNAPSHOT.epoch,
        last_timestamp_ms=wall_ms,
        kraft_version=KRAFT_VERSION_DYNAMIC,
        voters=voters_record(voters),
    )
    write_snapshot_file(filesystem, directory, BOOTSTRAP_SNAPSHOT, pieces)


def _check_cluster_id(cluster_id: str) -> None:
    try:
        Uuid.parse(cluster_id)
    except ValueError as error:
        raise InvalidArgument(
            f"the cluster id is {error}; `millstream storage random-uuid` makes one"
        ) from error
