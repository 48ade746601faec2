"""Access control entries: CreateAcls and DeleteAcls. Numbers: section 6.12 of the facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.controller.decision import RECORDS_PER_BATCH_MAX, Decision
from millstream.errors import ApiError, InvalidRequest
from millstream.metadata.acls import ANY, UNKNOWN, AccessControlEntry, AclFilter, PatternType
from millstream.protocol.messages.create_acls import AclCreationResult, CreateAclsResponse
from millstream.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from millstream.protocol.messages.security_records import RemoveAccessControlEntryRecord
from millstream.types import Uuid

if TYPE_CHECKING:
    from millstream.controller.replication_control import ControllerState
    from millstream.protocol.message import Message
    from millstream.protocol.messages.create_acls import AclCreation, CreateAclsRequest
    from millstream.protocol.messages.delete_acls import DeleteAclsRequest

CLUSTER_RESOURCE_TYPE: Final = 4
CLUSTER_NAME: Final = "kafka-cluster"
_RESOURCE_TYPES: Final = range(2, 8)
_OPERATIONS: Final = range(2, 16)
_PERMISSIONS: Final = range(2, 4)
_LEGAL_PATTERNS: Final = (PatternType.LITERAL, PatternType.PREFIXED)


def create_acls(state: ControllerState, request: CreateAclsRequest) -> Decision[CreateAclsResponse]:
    """Add entries; one that exists already is fine and not added again."""
    response = CreateAclsResponse()
    records: list[Message] = []
    existing = set(state.image.acls.by_id.values())
    for creation in request.creations:
        result = AclCreationResult(error_message=None)
        response.results.append(result)
        try:
            entry = _checked_entry(creation)
        except ApiError as error:
            result.error_code, result.error_message = error.code, str(error)
            continue
        if entry not in existing:
            existing.add(entry)
            records.append(entry.to_record(_new_id(state)))
    return Decision(response, records)


def delete_acls(state: ControllerState, request: DeleteAclsRequest) -> Decision[DeleteAclsResponse]:
    """Remove what each filter matches; an entry that two filters match is removed once."""
    response = DeleteAclsResponse()
    removed: set[Uuid] = set()
    for wanted in request.filters:
        result = DeleteAclsFilterResult(error_message=None)
        response.filter_results.append(result)
        try:
            _check_filter(wanted)
            matching = state.image.acls.matching(wanted)
            if len(removed | matching.keys()) > RECORDS_PER_BATCH_MAX:
                raise InvalidRequest(
                    f"more than {RECORDS_PER_BATCH_MAX} entries match: use narrower filters"
                )
        except ApiError as error:
            result.error_code, result.error_message = error.code, str(error)
            continue
        removed |= matching.keys()
        result.matching_acls = [_matching(entry) for entry in sorted(matching.values())]
    return Decision(
        response, [RemoveAccessControlEntryRecord(id=entry_id) for entry_id in sorted(removed)]
    )


def _checked_entry(creation: AclCreation) -> AccessControlEntry:
    if creation.resource_type not in _RESOURCE_TYPES:
        raise InvalidRequest(f"resource type {creation.resource_type} cannot have an ACL")
    if creation.resource_pattern_type not in _LEGAL_PATTERNS:
        raise InvalidRequest(f"pattern type {creation.resource_pattern_type} is for filters only")
    if creation.operation not in _OPERATIONS:
        raise InvalidRequest(f"operation {creation.operation} cannot be in an ACL")
    if creation.permission_type not in _PERMISSIONS:
        raise InvalidRequest(f"permission type {creation.permission_type} cannot be in an ACL")
    if not creation.resource_name:
        raise InvalidRequest("the resource has no name")
    if creation.resource_type == CLUSTER_RESOURCE_TYPE and creation.resource_name != CLUSTER_NAME:
        raise InvalidRequest(f"the cluster resource is called {CLUSTER_NAME}")
    if ":" not in creation.principal:
        raise InvalidRequest(f"principal {creation.principal!r} is not of the form User:name")
    return AccessControlEntry(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def _check_filter(wanted: AclFilter) -> None:
    unknown = {
        "resource type": wanted.resource_type_filter not in (ANY, *_RESOURCE_TYPES),
        "pattern type": wanted.pattern_type_filter not in tuple(PatternType)
        or wanted.pattern_type_filter == UNKNOWN,
        "operation": wanted.operation not in (ANY, *_OPERATIONS),
        "permission type": wanted.permission_type not in (ANY, *_PERMISSIONS),
    }
    faults = [name for name, is_unknown in unknown.items() if is_unknown]
    if faults:
        raise InvalidRequest(f"the filter has an unknown {', '.join(faults)}")


def _matching(entry: AccessControlEntry) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=entry.resource_type,
        resource_name=entry.resource_name,
        pattern_type=entry.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission_type,
    )


def _new_id(state: ControllerState) -> Uuid:
    while True:
        entry_id = Uuid.random(state.random)
        if entry_id not in state.image.acls.by_id:
            return entry_id
