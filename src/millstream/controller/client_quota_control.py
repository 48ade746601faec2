"""Client quotas: AlterClientQuotas. Types and entities: section 6.13 of the facts."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Final

from millstream.controller.decision import Decision
from millstream.errors import ApiError, InvalidRequest
from millstream.metadata.client_quotas import (
    CLIENT_ID,
    ENTITY_TYPES,
    IP,
    USER,
    QuotaEntity,
    entity_data,
    quota_entity,
)
from millstream.protocol.messages.alter_client_quotas import (
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
)
from millstream.protocol.messages.config_records import ClientQuotaRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.controller.replication_control import ControllerState
    from millstream.protocol.message import Message
    from millstream.protocol.messages.alter_client_quotas import (
        AlterClientQuotasRequest,
        AlterClientQuotasRequestEntryData,
        OpData,
    )

_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
_FRACTION_TOLERATED: Final = 1e-6

CLIENT_QUOTAS: Final[Mapping[str, int | None]] = {
    "producer_byte_rate": _INT64_MAX,
    "consumer_byte_rate": _INT64_MAX,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
"""Quotas of users and clients: the largest whole number, or None where fractions are fine."""

IP_QUOTAS: Final[Mapping[str, int | None]] = {"connection_creation_rate": _INT32_MAX}
"""Quotas of addresses."""

_HOST_NAME = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9-]+)*")


def alter_client_quotas(
    state: ControllerState, request: AlterClientQuotasRequest
) -> Decision[AlterClientQuotasResponse]:
    """Set and remove quotas; each entity succeeds or fails on its own."""
    response = AlterClientQuotasResponse()
    records: list[Message] = []
    seen: set[QuotaEntity] = set()
    for entry in request.entries:
        answer = AlterClientQuotasResponseEntryData(
            error_message=None,
            entity=[
                AlterClientQuotasResponseEntityData(
                    entity_type=each.entity_type, entity_name=each.entity_name
                )
                for each in entry.entity
            ],
        )
        response.entries.append(answer)
        try:
            entity = _checked_entity(entry)
            if entity in seen:
                raise InvalidRequest("the entity occurs more than once")
            seen.add(entity)
            current = state.image.client_quotas.by_entity.get(entity, {})
            records += _records(entity, entry.ops, current)
        except ApiError as error:
            answer.error_code, answer.error_message = error.code, str(error)
    return Decision(response, [] if request.validate_only else records)


def _checked_entity(entry: AlterClientQuotasRequestEntryData) -> QuotaEntity:
    types = [each.entity_type for each in entry.entity]
    if not types:
        raise InvalidRequest("the entity is empty")
    for entity_type in types:
        if entity_type not in ENTITY_TYPES:
            raise InvalidRequest(f"there is no entity type {entity_type!r}")
        if types.count(entity_type) > 1:
            raise InvalidRequest(f"entity type {entity_type} occurs twice")
    if IP in types and (USER in types or CLIENT_ID in types):
        raise InvalidRequest("ip cannot be combined with user or client-id")
    for each in entry.entity:
        if each.entity_type == IP and not _is_address(each.entity_name):
            raise InvalidRequest(f"{each.entity_name!r} is no address or host name")
    return quota_entity((each.entity_type, each.entity_name) for each in entry.entity)


def _is_address(name: str | None) -> bool:
    """An address or what may be a host's name: names are resolved by those who count."""
    if name is None:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return _HOST_NAME.fullmatch(name) is not None
    return True


def _records(
    entity: QuotaEntity, operations: Sequence[OpData], current: Mapping[str, float]
) -> list[Message]:
    known = IP_QUOTAS if any(kind == IP for kind, _ in entity) else CLIENT_QUOTAS
    records: list[Message] = []
    seen: set[str] = set()
    for operation in operations:
        if operation.key in seen:
            raise InvalidRequest(f"quota {operation.key} occurs twice")
        seen.add(operation.key)
        if operation.remove:
            if operation.key in current:
                records.append(
                    ClientQuotaRecord(entity=entity_data(entity), key=operation.key, remove=True)
                )
            continue
        _check_value(known, operation)
        if current.get(operation.key) != operation.value:
            records.append(
                ClientQuotaRecord(
                    entity=entity_data(entity), key=operation.key, value=operation.value
                )
            )
    return records


def _check_value(known: Mapping[str, int | None], operation: OpData) -> None:
    key, value = operation.key, operation.value
    if key not in known:
        raise InvalidRequest(f"there is no quota {key!r} for this entity: {', '.join(known)}")
    # Written so that NaN fails too.
    if not value > 0:
        raise InvalidRequest(f"quota {key} must be more than 0, not {value}")
    largest = known[key]
    if largest is None:
        return
    if value > largest:
        raise InvalidRequest(f"quota {key} is {value}, the largest is {largest}")
    if abs(value % 1.0) > _FRACTION_TOLERATED:
        raise InvalidRequest(f"quota {key} must be a whole number, not {value}")
