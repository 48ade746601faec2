"""AllocateProducerIds and AlterClientQuotas."""

from __future__ import annotations

import math

import pytest

from millstream.metadata.client_quotas import quota_entity
from millstream.protocol.messages import alter_client_quotas as alter
from millstream.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from tests.unit.controller.rig import Rig


def test_producer_ids_come_in_blocks_of_1000_and_never_twice() -> None:
    rig = Rig([0, 1])

    blocks = [
        rig.ask(AllocateProducerIdsRequest(broker_id=each, broker_epoch=rig.epoch_of(each)))
        for each in (0, 1, 0)
    ]

    assert [each.producer_id_start for each in blocks] == [0, 1000, 2000]
    assert {each.producer_id_len for each in blocks} == {1000}
    assert rig.image.producer_ids.next_producer_id == 3000


def test_producer_ids_need_the_current_broker_epoch() -> None:
    rig = Rig([0])

    assert rig.ask(AllocateProducerIdsRequest(broker_id=0, broker_epoch=99)).error_code == 77


def test_producer_ids_end_some_day() -> None:
    from millstream.protocol.messages.config_records import ProducerIdsRecord

    rig = Rig([0])
    term = rig.controller._term
    assert term is not None
    rig.controller._append(term, [ProducerIdsRecord(next_producer_id=2**63 - 500)], 0)
    request = AllocateProducerIdsRequest(broker_id=0, broker_epoch=rig.epoch_of(0))

    assert rig.ask(request).error_code == -1


Entity = dict[str, str | None]
ALICE: Entity = {"user": "alice"}


def entry(
    entity: Entity, *operations: tuple[str, float | None]
) -> alter.AlterClientQuotasRequestEntryData:
    return alter.AlterClientQuotasRequestEntryData(
        entity=[
            alter.AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name)
            for kind, name in entity.items()
        ],
        ops=[
            alter.OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in operations
        ],
    )


def alter_quotas(
    rig: Rig, *entries: alter.AlterClientQuotasRequestEntryData, validate_only: bool = False
) -> list[int]:
    request = alter.AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    return [each.error_code for each in rig.ask(request).entries]


def test_quotas_are_set_and_removed() -> None:
    rig = Rig()
    both: Entity = {"user": None, "client-id": "c"}

    assert alter_quotas(
        rig, entry(ALICE, ("producer_byte_rate", 1000.0)), entry(both, ("request_percentage", 12.5))
    ) == [0, 0]
    quotas = rig.image.client_quotas.by_entity
    assert quotas[quota_entity(ALICE.items())] == {"producer_byte_rate": 1000.0}
    assert quotas[quota_entity(both.items())] == {"request_percentage": 12.5}
    assert alter_quotas(rig, entry(ALICE, ("producer_byte_rate", None))) == [0]
    assert quota_entity(ALICE.items()) not in rig.image.client_quotas.by_entity


def test_quotas_that_change_nothing_write_nothing() -> None:
    rig = Rig()
    alter_quotas(rig, entry(ALICE, ("producer_byte_rate", 5.0)))
    before = rig.log.end_offset

    alter_quotas(rig, entry(ALICE, ("producer_byte_rate", 5.0), ("consumer_byte_rate", None)))
    alter_quotas(rig, entry(ALICE, ("producer_byte_rate", 6.0)), validate_only=True)

    assert rig.log.end_offset == before


@pytest.mark.parametrize(
    "bad",
    [
        entry({}, ("producer_byte_rate", 1.0)),
        entry({"planet": "mars"}, ("producer_byte_rate", 1.0)),
        entry({"ip": "1.2.3.4", "user": "alice"}, ("connection_creation_rate", 1.0)),
        entry({"ip": "not an address!"}, ("connection_creation_rate", 1.0)),
        entry({"ip": "1.2.3.4"}, ("producer_byte_rate", 1.0)),
        entry(ALICE, ("connection_creation_rate", 1.0)),
        entry(ALICE, ("producer_byte_rate", -1.0)),
        entry(ALICE, ("producer_byte_rate", math.nan)),
        entry(ALICE, ("producer_byte_rate", 1.5)),
        entry(ALICE, ("producer_byte_rate", 1e30)),
        entry(ALICE, ("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)),
        entry({"ip": "1.2.3.4"}, ("connection_creation_rate", 3e9)),
    ],
)
def test_quotas_that_cannot_be_are_refused(bad: alter.AlterClientQuotasRequestEntryData) -> None:
    rig = Rig()

    assert alter_quotas(rig, bad) == [42]
    assert not rig.image.client_quotas.by_entity


def test_an_entity_that_names_a_type_twice_or_occurs_twice_is_refused() -> None:
    rig = Rig()
    twice = entry(ALICE, ("producer_byte_rate", 1.0))
    twice.entity *= 2

    assert alter_quotas(rig, twice) == [42]
    once = entry(ALICE, ("producer_byte_rate", 1.0))
    assert alter_quotas(rig, once, once) == [0, 42]


@pytest.mark.parametrize("name", ["1.2.3.4", "::1", "host.example.org", None])
def test_addresses_have_quotas(name: str | None) -> None:
    assert alter_quotas(Rig(), entry({"ip": name}, ("connection_creation_rate", 5.0))) == [0]
