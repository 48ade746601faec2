"""Client quotas by entity, as the log has them.

Part of `MetadataImage`. An entity is a combination of user, client-id or ip; a name of None is the
default of its type. Which quota holds for a given client is decided where requests are throttled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NewType

from millstream.errors import InvalidRequest, UnsupportedVersion
from millstream.metadata.shared_map import SharedMap
from millstream.protocol.messages import describe_client_quotas as describe
from millstream.protocol.messages.config_records import ClientQuotaRecord, EntityData

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

QuotaEntity = NewType("QuotaEntity", frozenset[tuple[str, str | None]])
"""(type, name) pairs; each type at most once."""

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = frozenset({USER, CLIENT_ID, IP})

MATCH_EXACT: Final = 0
MATCH_DEFAULT: Final = 1
MATCH_SPECIFIED: Final = 2


def quota_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """An entity from (type, name) pairs."""
    return QuotaEntity(frozenset(parts))


@dataclass(frozen=True, slots=True)
class ClientQuotasImage:
    """Quotas by entity; an entity without quotas is absent."""

    by_entity: SharedMap[QuotaEntity, Mapping[str, float]] = field(default_factory=SharedMap)

    def to_records(self) -> Iterator[ClientQuotaRecord]:
        """By entity, then by key."""
        for entity in sorted(self.by_entity, key=_sort_key):
            for key, value in sorted(self.by_entity[entity].items()):
                yield ClientQuotaRecord(entity=entity_data(entity), key=key, value=value)


class ClientQuotasDelta:
    """Changes of quotas; None is removed."""

    def __init__(self, image: ClientQuotasImage) -> None:
        self.image = image
        self.changes: dict[QuotaEntity, dict[str, float | None]] = {}

    def replay_quota(self, record: ClientQuotaRecord) -> None:
        """Set or remove one quota."""
        entity = quota_entity((each.entity_type, each.entity_name) for each in record.entity)
        value = None if record.remove else record.value
        self.changes.setdefault(entity, {})[record.key] = value

    def finish_snapshot(self) -> None:
        """What a snapshot does not mention is gone."""
        for entity, before in self.image.by_entity.items():
            changes = self.changes.setdefault(entity, {})
            changes.update(dict.fromkeys(before.keys() - changes.keys()))

    def apply(self) -> ClientQuotasImage:
        """The quotas after the changes."""
        changed: dict[QuotaEntity, Mapping[str, float]] = {}
        removed = []
        for entity, changes in self.changes.items():
            after = {
                key: value
                for key, value in {**self.image.by_entity.get(entity, {}), **changes}.items()
                if value is not None
            }
            if after:
                changed[entity] = after
            else:
                removed.append(entity)
        return ClientQuotasImage(self.image.by_entity.evolve(changed, removed))


def entity_data(entity: QuotaEntity) -> list[EntityData]:
    """An entity as records carry it."""
    return [
        EntityData(entity_type=entity_type, entity_name=name)
        for entity_type, name in _sort_key(entity, None)
    ]


def describe_client_quotas(
    image: ClientQuotasImage, request: describe.DescribeClientQuotasRequest
) -> describe.DescribeClientQuotasResponse:
    """The entities that match every component; with `strict` those that have no other part."""
    try:
        wanted = _components(request)
    except (InvalidRequest, UnsupportedVersion) as error:
        return describe.DescribeClientQuotasResponse(
            error_code=error.code, error_message=str(error), entries=None
        )
    entries = []
    for entity in sorted(image.by_entity, key=_sort_key):
        if _matches(dict(entity), wanted, strict=request.strict):
            quotas = sorted(image.by_entity[entity].items())
            entries.append(
                describe.EntryData(
                    entity=[
                        describe.EntityData(
                            entity_type=each.entity_type, entity_name=each.entity_name
                        )
                        for each in entity_data(entity)
                    ],
                    values=[describe.ValueData(key=key, value=value) for key, value in quotas],
                )
            )
    return describe.DescribeClientQuotasResponse(entries=entries)


def _components(
    request: describe.DescribeClientQuotasRequest,
) -> dict[str, describe.ComponentData]:
    wanted: dict[str, describe.ComponentData] = {}
    for component in request.components:
        if not component.entity_type:
            raise InvalidRequest("a component names no entity type")
        if component.entity_type not in ENTITY_TYPES:
            raise UnsupportedVersion(f"there is no quota entity type {component.entity_type!r}")
        if component.entity_type in wanted:
            raise InvalidRequest(f"entity type {component.entity_type} occurs twice")
        if component.match_type not in (MATCH_EXACT, MATCH_DEFAULT, MATCH_SPECIFIED):
            raise InvalidRequest(f"there is no match type {component.match_type}")
        if (component.match is None) == (component.match_type == MATCH_EXACT):
            raise InvalidRequest("a name goes with an exact match, and only with that")
        wanted[component.entity_type] = component
    if IP in wanted and len(wanted) > 1:
        raise InvalidRequest("ip cannot be combined with user or client-id")
    return wanted


def _matches(
    entity: Mapping[str, str | None],
    wanted: Mapping[str, describe.ComponentData],
    *,
    strict: bool,
) -> bool:
    if strict and entity.keys() != wanted.keys():
        return False
    for entity_type, component in wanted.items():
        if entity_type not in entity:
            return False
        name = entity[entity_type]
        if component.match_type == MATCH_EXACT and name != component.match:
            return False
        if component.match_type == MATCH_DEFAULT and name is not None:
            return False
    return True


def _sort_key(entity: QuotaEntity, default: str | None = "") -> list[tuple[str, str | None]]:
    """The parts in a fixed order; `default` stands where a name is None, so that they compare."""
    ordered = sorted(entity, key=lambda part: part[0])
    return [(kind, default if name is None else name) for kind, name in ordered]
