"""The nodes of the cluster: brokers and controllers as they registered, and their state since.

Part of `MetadataImage`. Whether a broker is alive right now is decided by the controller's
sessions; here is what it wrote down about it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from millstream.metadata.features import CORDONED_DIRECTORIES_SINCE, DIRECTORIES_SINCE
from millstream.protocol.messages.broker_records import (
    BrokerEndpoint,
    BrokerFeature,
    ControllerEndpoint,
    ControllerFeature,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from millstream.protocol.notation import VersionRange
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DIRECTORY_MIGRATING: Final = Uuid.ZERO
"""The replica's directory is not known: its records are from before directories had ids."""
DIRECTORY_UNASSIGNED: Final = Uuid(bytes(15) + b"\x01")
"""The broker has several directories and has not chosen one yet."""
DIRECTORY_LOST: Final = Uuid(bytes(15) + b"\x02")
"""The replica was in a directory that failed, but which one is not known."""
_RESERVED_BELOW: Final = 100


def is_reserved_directory(directory: Uuid) -> bool:
    """Whether an id means something other than a directory."""
    return int.from_bytes(directory, "big") < _RESERVED_BELOW


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a listener of a node can be reached."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A broker as the cluster knows it."""

    id: int
    epoch: int
    incarnation_id: Uuid
    listeners: Mapping[str, Endpoint]
    features: Mapping[str, VersionRange]
    rack: str | None = None
    is_fenced: bool = True
    in_controlled_shutdown: bool = False
    directories: tuple[Uuid, ...] = ()
    cordoned_directories: tuple[Uuid, ...] | None = None

    @property
    def is_active(self) -> bool:
        """Whether it may lead and be in sync."""
        return not self.is_fenced and not self.in_controlled_shutdown

    def has_online(self, directory: Uuid) -> bool:
        """Whether a replica in that directory can be served, as far as is known."""
        if directory in (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING):
            return True
        if directory == DIRECTORY_LOST:
            return False
        return not self.directories or directory in self.directories

    @property
    def default_directory(self) -> Uuid:
        """Where a new replica will be: known at once if there is only one directory."""
        if not self.directories:
            return DIRECTORY_MIGRATING
        return self.directories[0] if len(self.directories) == 1 else DIRECTORY_UNASSIGNED

    @property
    def accepts_replicas(self) -> bool:
        """Whether it has a directory that is not cordoned off."""
        cordoned = self.cordoned_directories
        return not cordoned or not set(self.directories) <= set(cordoned)

    @classmethod
    def from_record(cls, record: RegisterBrokerRecord) -> BrokerRegistration:
        """Read a registration."""
        cordoned = record.cordoned_log_dirs
        return cls(
            record.broker_id,
            record.broker_epoch,
            record.incarnation_id,
            _endpoints(record.end_points),
            _ranges(record.features),
            record.rack,
            record.fenced,
            record.in_controlled_shutdown,
            tuple(sorted(record.log_dirs)),
            None if cordoned is None else tuple(sorted(cordoned)),
        )

    def to_record(self, metadata_version: int) -> RegisterBrokerRecord:
        """Write the registration with what a metadata.version can carry."""
        record = RegisterBrokerRecord(
            broker_id=self.id,
            broker_epoch=self.epoch,
            incarnation_id=self.incarnation_id,
            end_points=[
                BrokerEndpoint(
                    name=each.name,
                    host=each.host,
                    port=each.port,
                    security_protocol=each.security_protocol,
                )
                for each in self.listeners.values()
            ],
            features=[
                BrokerFeature(
                    name=name,
                    min_supported_version=supported.lowest,
                    max_supported_version=supported.highest,
                )
                for name, supported in self.features.items()
            ],
            rack=self.rack,
            fenced=self.is_fenced,
            in_controlled_shutdown=self.in_controlled_shutdown,
        )
        if metadata_version >= DIRECTORIES_SINCE:
            record.log_dirs = list(self.directories)
        if metadata_version >= CORDONED_DIRECTORIES_SINCE and self.cordoned_directories is not None:
            record.cordoned_log_dirs = list(self.cordoned_directories)
        return record


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    """A controller as the cluster knows it."""

    id: int
    incarnation_id: Uuid
    listeners: Mapping[str, Endpoint]
    features: Mapping[str, VersionRange]
    is_zk_migration_ready: bool = False

    @classmethod
    def from_record(cls, record: RegisterControllerRecord) -> ControllerRegistration:
        """Read a registration."""
        return cls(
            record.controller_id,
            record.incarnation_id,
            _endpoints(record.end_points),
            _ranges(record.features),
            record.zk_migration_ready,
        )

    def to_record(self) -> RegisterControllerRecord:
        """Write the registration."""
        return RegisterControllerRecord(
            controller_id=self.id,
            incarnation_id=self.incarnation_id,
            zk_migration_ready=self.is_zk_migration_ready,
            end_points=[
                ControllerEndpoint(
                    name=each.name,
                    host=each.host,
                    port=each.port,
                    security_protocol=each.security_protocol,
                )
                for each in self.listeners.values()
            ],
            features=[
                ControllerFeature(
                    name=name,
                    min_supported_version=supported.lowest,
                    max_supported_version=supported.highest,
                )
                for name, supported in self.features.items()
            ],
        )


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """All registered nodes by id."""

    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    controllers: Mapping[int, ControllerRegistration] = field(default_factory=dict)

    def is_active(self, broker_id: int) -> bool:
        """Whether a broker may lead and be in sync."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def is_unfenced(self, broker_id: int) -> bool:
        """Whether a broker serves clients, be it on its way down."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.is_fenced

    def default_directory(self, broker_id: int) -> Uuid:
        """Where a new replica on a broker will be."""
        broker = self.brokers.get(broker_id)
        return DIRECTORY_UNASSIGNED if broker is None else broker.default_directory

    def to_records(
        self, metadata_version: int
    ) -> Iterator[RegisterBrokerRecord | RegisterControllerRecord]:
        """Brokers, then controllers, by id."""
        for broker_id in sorted(self.brokers):
            yield self.brokers[broker_id].to_record(metadata_version)
        for controller_id in sorted(self.controllers):
            yield self.controllers[controller_id].to_record()


def _endpoints(found: list[BrokerEndpoint] | list[ControllerEndpoint]) -> dict[str, Endpoint]:
    return {
        each.name: Endpoint(each.name, each.host, each.port, each.security_protocol)
        for each in found
    }


def _ranges(found: list[BrokerFeature] | list[ControllerFeature]) -> dict[str, VersionRange]:
    return {
        each.name: VersionRange(each.min_supported_version, each.max_supported_version)
        for each in found
    }
