"""Quotas of users, clients and addresses: read and change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.client.admin.operations import Operations, error_or
from millstream.client.router import ANY, CONTROLLER
from millstream.errors import InvalidArgument, MillstreamError
from millstream.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    OpData,
)
from millstream.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from millstream.client.admin.outcomes import Outcomes
    from millstream.protocol.messages.alter_client_quotas import (
        AlterClientQuotasResponseEntityData,
    )
    from millstream.protocol.messages.describe_client_quotas import EntityData

DEFAULT: Final = "<default>"
"""As a user, client or address: all that have no quota of their own."""

_EXACT, _DEFAULT_ONLY, _ANY_NAME = 0, 1, 2
_TYPES: Final = {"user": "user", "client_id": "client-id", "ip": "ip"}


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """Whom a quota holds: a user, a client id, both, or an address; `DEFAULT` for the others."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None


@dataclass(frozen=True, slots=True)
class QuotaFilter:
    """Finds quotas: those of a name, of `DEFAULT`, or (`ANY_NAME`) of any name of the kind."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None
    is_strict: bool = False
    """Whether entities that have other kinds of names besides are left out."""


ANY_NAME: Final = "<any>"
"""In a `QuotaFilter`: every name of the kind."""


class QuotaOperations(Operations):
    """Operations on quotas."""

    async def describe_client_quotas(
        self, quota_filter: QuotaFilter | None = None, *, timeout: float | None = None
    ) -> dict[QuotaEntity, Mapping[str, float]]:
        """The quotas that a filter finds, all without one; values by Kafka's names."""
        wanted = quota_filter or QuotaFilter()
        request = DescribeClientQuotasRequest(
            components=[
                _component(kind, name)
                for field, kind in _TYPES.items()
                if (name := getattr(wanted, field)) is not None
            ],
            strict=wanted.is_strict,
        )
        answer = await self._call(request, ANY, DescribeClientQuotasResponse, timeout)
        return {
            _entity(entry.entity): {each.key: each.value for each in entry.values}
            for entry in answer.entries or ()
        }

    async def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> Outcomes[QuotaEntity, None]:
        """Set quotas (`{"producer_byte_rate": 1e6}`); None takes one away."""

        def request(items: Sequence[QuotaEntity]) -> AlterClientQuotasRequest:
            return AlterClientQuotasRequest(
                entries=[_entry(each, changes[each]) for each in items],
                validate_only=validate_only,
            )

        def read(
            answer: AlterClientQuotasResponse, _items: Sequence[QuotaEntity]
        ) -> dict[QuotaEntity, MillstreamError | None]:
            return {
                _entity(each.entity): error_or(None, each.error_code, each.error_message)
                for each in answer.entries
            }

        return await self._each(changes, lambda _: CONTROLLER, request, read, timeout)


def _component(kind: str, name: str) -> ComponentData:
    if name == ANY_NAME:
        return ComponentData(entity_type=kind, match_type=_ANY_NAME, match=None)
    if name == DEFAULT:
        return ComponentData(entity_type=kind, match_type=_DEFAULT_ONLY, match=None)
    return ComponentData(entity_type=kind, match_type=_EXACT, match=name)


def _entry(
    entity: QuotaEntity, values: Mapping[str, float | None]
) -> AlterClientQuotasRequestEntryData:
    named = [
        AlterClientQuotasRequestEntityData(
            entity_type=kind, entity_name=None if name == DEFAULT else name
        )
        for field, kind in _TYPES.items()
        if (name := getattr(entity, field)) is not None
    ]
    if not named:
        raise InvalidArgument("a quota needs a user, a client_id or an ip")
    return AlterClientQuotasRequestEntryData(
        entity=named,
        ops=[
            OpData(key=key, value=0.0 if value is None else float(value), remove=value is None)
            for key, value in values.items()
        ],
    )


def _entity(told: Iterable[EntityData | AlterClientQuotasResponseEntityData]) -> QuotaEntity:
    names = {
        each.entity_type: DEFAULT if each.entity_name is None else each.entity_name for each in told
    }
    return QuotaEntity(names.get("user"), names.get("client-id"), names.get("ip"))
