"""Access control entries by id, and filters over them. Part of `MetadataImage`.

What an entry allows is decided by the authorizer; here entries are kept, found and described.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Protocol

from millstream.metadata.records import UnreplayableRecord
from millstream.metadata.shared_map import SharedMap
from millstream.protocol.messages import describe_acls as describe
from millstream.protocol.messages.security_records import AccessControlEntryRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.protocol.messages.security_records import RemoveAccessControlEntryRecord
    from millstream.types import Uuid

UNKNOWN: Final = 0
ANY: Final = 1
"""The same numbers in every enumeration of ACLs."""
WILDCARD_RESOURCE: Final = "*"


class PatternType(IntEnum):
    """How a resource's name is meant; MATCH and ANY occur in filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


@dataclass(frozen=True, slots=True, order=True)
class AccessControlEntry:
    """One rule: who may or may not do what to which resource from where."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    @classmethod
    def from_record(cls, record: AccessControlEntryRecord) -> AccessControlEntry:
        """Read an entry."""
        return cls(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )

    def to_record(self, entry_id: Uuid) -> AccessControlEntryRecord:
        """Write the entry."""
        return AccessControlEntryRecord(
            id=entry_id,
            resource_type=self.resource_type,
            resource_name=self.resource_name,
            pattern_type=self.pattern_type,
            principal=self.principal,
            host=self.host,
            operation=self.operation,
            permission_type=self.permission_type,
        )


class AclFilter(Protocol):
    """What DescribeAcls and DeleteAcls filter by; ANY and None match everything."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def matches(entry: AccessControlEntry, wanted: AclFilter) -> bool:
    """Whether an entry is one of those that a filter means."""
    return (
        wanted.resource_type_filter in (ANY, entry.resource_type)
        and wanted.principal_filter in (None, entry.principal)
        and wanted.host_filter in (None, entry.host)
        and wanted.operation in (ANY, entry.operation)
        and wanted.permission_type in (ANY, entry.permission_type)
        and _matches_pattern(entry, wanted.resource_name_filter, wanted.pattern_type_filter)
    )


def _matches_pattern(entry: AccessControlEntry, name: str | None, pattern_type: int) -> bool:
    if pattern_type not in (PatternType.ANY, PatternType.MATCH, entry.pattern_type):
        return False
    if name is None or entry.resource_name == name:
        return True
    if pattern_type != PatternType.MATCH:
        return False
    if entry.pattern_type == PatternType.LITERAL:
        return entry.resource_name == WILDCARD_RESOURCE
    return name.startswith(entry.resource_name)


@dataclass(frozen=True, slots=True)
class AclsImage:
    """All entries."""

    by_id: SharedMap[Uuid, AccessControlEntry] = field(default_factory=SharedMap)

    def matching(self, wanted: AclFilter) -> dict[Uuid, AccessControlEntry]:
        """The entries that a filter means."""
        return {entry_id: entry for entry_id, entry in self.by_id.items() if matches(entry, wanted)}

    def to_records(self) -> Iterator[AccessControlEntryRecord]:
        """By id."""
        for entry_id in sorted(self.by_id):
            yield self.by_id[entry_id].to_record(entry_id)


class AclsDelta:
    """Changes of entries; None is removed."""

    def __init__(self, image: AclsImage) -> None:
        self.image = image
        self.changes: dict[Uuid, AccessControlEntry | None] = {}

    def replay_entry(self, record: AccessControlEntryRecord) -> None:
        """An entry comes."""
        self.changes[record.id] = AccessControlEntry.from_record(record)

    def replay_remove_entry(self, record: RemoveAccessControlEntryRecord) -> None:
        """An entry goes."""
        if self.changes.get(record.id, self.image.by_id.get(record.id)) is None:
            raise UnreplayableRecord(f"a record removes ACL {record.id}, which does not exist")
        self.changes[record.id] = None

    def finish_snapshot(self) -> None:
        """What a snapshot does not mention is gone."""
        self.changes.update(dict.fromkeys(self.image.by_id.keys() - self.changes.keys()))

    def apply(self) -> AclsImage:
        """The entries after the changes."""
        return AclsImage(
            self.image.by_id.evolve(
                {entry_id: each for entry_id, each in self.changes.items() if each is not None},
                [entry_id for entry_id, each in self.changes.items() if each is None],
            )
        )


def describe_acls(
    image: AclsImage, request: describe.DescribeAclsRequest
) -> describe.DescribeAclsResponse:
    """The entries that the request's filter means, by resource."""
    resources: dict[tuple[int, str, int], describe.DescribeAclsResource] = {}
    for entry in sorted(image.matching(request).values()):
        key = (entry.resource_type, entry.resource_name, entry.pattern_type)
        resource = resources.setdefault(
            key,
            describe.DescribeAclsResource(
                resource_type=key[0], resource_name=key[1], pattern_type=key[2]
            ),
        )
        resource.acls.append(
            describe.AclDescription(
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission_type,
            )
        )
    return describe.DescribeAclsResponse(error_message=None, resources=list(resources.values()))
