"""Access control lists: create, find, delete. Names of topics and groups get the namespace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.client.admin.operations import Operations, error_or
from millstream.client.router import ANY, CONTROLLER
from millstream.errors import InvalidArgument, MillstreamError, error_for_code
from millstream.protocol.messages.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from millstream.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from millstream.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from millstream.client.admin.outcomes import Outcomes
    from millstream.protocol.messages.delete_acls import DeleteAclsFilterResult

_ANY_CODE: Final = 1
_RESOURCES: Final[Mapping[str, int]] = {
    "topic": 2,
    "group": 3,
    "cluster": 4,
    "transactional_id": 5,
    "delegation_token": 6,
    "user": 7,
}
_PATTERNS: Final[Mapping[str, int]] = {"match": 2, "literal": 3, "prefixed": 4}
_OPERATIONS: Final[Mapping[str, int]] = {
    "all": 2,
    "read": 3,
    "write": 4,
    "create": 5,
    "delete": 6,
    "alter": 7,
    "describe": 8,
    "cluster_action": 9,
    "describe_configs": 10,
    "alter_configs": 11,
    "idempotent_write": 12,
    "create_tokens": 13,
    "describe_tokens": 14,
    "two_phase_commit": 15,
}
_PERMISSIONS: Final[Mapping[str, int]] = {"deny": 2, "allow": 3}
_PREFIXED_RESOURCES: Final = frozenset({"topic", "group", "transactional_id"})


@dataclass(frozen=True, slots=True)
class Acl:
    """Who may do what with what, or may not."""

    resource_type: str
    """topic, group, cluster, transactional_id, delegation_token or user."""
    resource_name: str
    principal: str
    """Such as "User:alice"."""
    operation: str
    """read, write, create, delete, alter, describe, all and so on."""
    permission: str = "allow"
    pattern: str = "literal"
    """literal, or prefixed: every name that begins so."""
    host: str = "*"


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Finds ACLs; what is None matches everything."""

    resource_type: str | None = None
    resource_name: str | None = None
    principal: str | None = None
    operation: str | None = None
    permission: str | None = None
    pattern: str | None = None
    """literal, prefixed, or "match": whatever applies to the name."""
    host: str | None = None


class AclOperations(Operations):
    """Operations on access control lists."""

    async def create_acls(
        self, acls: Iterable[Acl], *, timeout: float | None = None
    ) -> Outcomes[Acl, None]:
        """Add ACLs."""

        def request(items: Sequence[Acl]) -> CreateAclsRequest:
            return CreateAclsRequest(creations=[self._creation(each) for each in items])

        def read(
            answer: CreateAclsResponse, items: Sequence[Acl]
        ) -> dict[Acl, MillstreamError | None]:
            # Answers have no names: they come in the order of the questions.
            return {
                item: error_or(None, each.error_code, each.error_message)
                for item, each in zip(items, answer.results, strict=False)
            }

        return await self._each(acls, lambda _: CONTROLLER, request, read, timeout)

    async def describe_acls(
        self, acl_filter: AclFilter | None = None, *, timeout: float | None = None
    ) -> list[Acl]:
        """The ACLs that a filter finds; all without one."""
        wanted = acl_filter or AclFilter()
        request = DescribeAclsRequest(
            resource_type_filter=_code(_RESOURCES, wanted.resource_type),
            resource_name_filter=self._wire_name(wanted.resource_type, wanted.resource_name),
            pattern_type_filter=_code(_PATTERNS, wanted.pattern),
            principal_filter=wanted.principal,
            host_filter=wanted.host,
            operation=_code(_OPERATIONS, wanted.operation),
            permission_type=_code(_PERMISSIONS, wanted.permission),
        )
        answer = await self._call(request, ANY, DescribeAclsResponse, timeout)
        found = [
            self._acl(
                resource.resource_type,
                resource.resource_name,
                resource.pattern_type,
                each.principal,
                each.host,
                each.operation,
                each.permission_type,
            )
            for resource in answer.resources
            for each in resource.acls
        ]
        return [each for each in found if each is not None]

    async def delete_acls(
        self, filters: Iterable[AclFilter], *, timeout: float | None = None
    ) -> Outcomes[AclFilter, tuple[Acl, ...]]:
        """Delete the ACLs that filters find; gives the ones that are gone."""

        def request(items: Sequence[AclFilter]) -> DeleteAclsRequest:
            return DeleteAclsRequest(filters=[self._deletion(each) for each in items])

        def read(
            answer: DeleteAclsResponse, items: Sequence[AclFilter]
        ) -> dict[AclFilter, tuple[Acl, ...] | MillstreamError]:
            return {
                item: self._deleted(told)
                for item, told in zip(items, answer.filter_results, strict=False)
            }

        return await self._each(filters, lambda _: CONTROLLER, request, read, timeout)

    def _deleted(self, told: DeleteAclsFilterResult) -> tuple[Acl, ...] | MillstreamError:
        if told.error_code:
            return error_for_code(told.error_code, told.error_message)
        gone: list[Acl] = []
        for each in told.matching_acls:
            if each.error_code:
                return error_for_code(each.error_code, each.error_message)
            acl = self._acl(
                each.resource_type,
                each.resource_name,
                each.pattern_type,
                each.principal,
                each.host,
                each.operation,
                each.permission_type,
            )
            gone += [] if acl is None else [acl]
        return tuple(gone)

    def _creation(self, acl: Acl) -> AclCreation:
        return AclCreation(
            resource_type=_code(_RESOURCES, acl.resource_type),
            resource_name=self._wire_name(acl.resource_type, acl.resource_name) or "",
            resource_pattern_type=_code(_PATTERNS, acl.pattern),
            principal=acl.principal,
            host=acl.host,
            operation=_code(_OPERATIONS, acl.operation),
            permission_type=_code(_PERMISSIONS, acl.permission),
        )

    def _deletion(self, wanted: AclFilter) -> DeleteAclsFilter:
        return DeleteAclsFilter(
            resource_type_filter=_code(_RESOURCES, wanted.resource_type),
            resource_name_filter=self._wire_name(wanted.resource_type, wanted.resource_name),
            pattern_type_filter=_code(_PATTERNS, wanted.pattern),
            principal_filter=wanted.principal,
            host_filter=wanted.host,
            operation=_code(_OPERATIONS, wanted.operation),
            permission_type=_code(_PERMISSIONS, wanted.permission),
        )

    def _wire_name(self, resource_type: str | None, name: str | None) -> str | None:
        if name is None or name == "*":
            return name
        return self._names.to_wire(name) if resource_type in _PREFIXED_RESOURCES else name

    def _acl(
        self,
        resource: int,
        name: str,
        pattern: int,
        principal: str,
        host: str,
        operation: int,
        permission: int,
    ) -> Acl | None:
        kind = _name(_RESOURCES, resource)
        shown = name
        if kind in _PREFIXED_RESOURCES and name != "*":
            local = self._names.from_wire(name)
            if local is None:
                return None
            shown = local
        return Acl(
            kind,
            shown,
            principal,
            _name(_OPERATIONS, operation),
            _name(_PERMISSIONS, permission),
            _name(_PATTERNS, pattern),
            host,
        )


def _code(codes: Mapping[str, int], name: str | None) -> int:
    if name is None:
        return _ANY_CODE
    if name not in codes:
        raise InvalidArgument(f"{name!r}: use one of {', '.join(codes)}")
    return codes[name]


def _name(codes: Mapping[str, int], code: int) -> str:
    return next((name for name, each in codes.items() if each == code), "unknown")
