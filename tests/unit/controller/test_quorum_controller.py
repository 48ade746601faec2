"""Becoming active, answering after commit, losing leadership, idling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.controller.decision import RECORDS_PER_BATCH_MAX, Decision
from millstream.controller.failures import CONTROLLER_REQUESTS, error_response
from millstream.errors import NotController
from millstream.metadata.features import default_levels
from millstream.metadata.image import MetadataProvenance
from millstream.metadata.records import MetadataBatch, UnreplayableRecord
from millstream.metadata.snapshots import image_records
from millstream.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from millstream.protocol.messages.config_records import FeatureLevelRecord
from millstream.protocol.messages.create_topics import CreateTopicsRequest
from millstream.protocol.messages.log_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
)
from millstream.protocol.messages.topic_records import PartitionChangeRecord, TopicRecord
from millstream.types import Uuid
from tests.unit.controller.rig import WALL_MS, Rig, new_topic, replayed

if TYPE_CHECKING:
    from millstream.protocol.message import Message


def creation(name: str = "t") -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[new_topic(name, [[0]])])


def test_an_empty_log_gets_the_bootstrap_records_in_a_transaction() -> None:
    rig = Rig()

    records = rig.log.records
    assert isinstance(records[0], BeginTransactionRecord)
    assert records[1] == FeatureLevelRecord(name="metadata.version", feature_level=30)
    assert isinstance(records[-1], EndTransactionRecord)
    assert rig.controller.image.features.levels == default_levels()


def test_before_metadata_version_13_there_are_no_transactions() -> None:
    rig = Rig(metadata_version=12)

    assert [type(each) for each in rig.log.records] == [FeatureLevelRecord]


def test_a_log_that_is_not_empty_gets_nothing() -> None:
    rig = Rig([0])
    before = rig.log.end_offset
    rig.log.epoch = 2

    rig.controller.on_leader(2, 0, 0)

    assert rig.log.end_offset == before
    assert rig.controller.epoch == 2


def test_an_answer_waits_until_its_records_are_committed() -> None:
    rig = Rig([0])

    answers = rig.submit(creation())

    assert answers == []
    assert "t" in rig.controller.uncommitted_image.topics.by_name
    assert "t" not in rig.controller.image.topics.by_name
    rig.commit()
    assert answers[0].topics[0].error_code == 0
    assert "t" in rig.controller.image.topics.by_name


def test_an_answer_without_records_waits_for_what_it_was_decided_on() -> None:
    rig = Rig([0])
    first = rig.submit(creation())

    second = rig.submit(creation())
    assert (first, second) == ([], [])

    rig.commit()
    assert second[0].topics[0].error_code == 36
    third = rig.submit(creation())
    assert third[0].topics[0].error_code == 36


def test_commits_answer_in_order_and_no_further_than_they_reach() -> None:
    rig = Rig([0])
    order: list[str] = []
    for name in ("a", "b"):
        rig.controller.handle(creation(name), rig.context(7), lambda _, n=name: order.append(n))  # type: ignore[misc]
    ends = [batch.last_offset for batch in rig.log.batches[-2:]]

    rig.controller.on_committed(ends[0])
    assert order == ["a"]
    assert set(rig.controller.image.topics.by_name) == {"a"}
    rig.controller.on_committed(ends[1])
    assert order == ["a", "b"]


def test_a_log_that_commits_within_the_append_is_answered_at_once() -> None:
    rig = Rig([0])
    rig.log.on_append = rig.controller.on_committed

    assert rig.submit(creation())[0].topics[0].error_code == 0
    assert "t" in rig.controller.image.topics.by_name
    assert rig.submit(creation())[0].topics[0].error_code == 36


def test_leadership_lost_within_the_append_is_lost() -> None:
    rig = Rig([0])
    rig.log.on_append = lambda _: rig.controller.on_not_leader()

    assert rig.submit(creation())[0].topics[0].error_code == 41
    assert not rig.controller.is_active
    assert "t" not in rig.controller.uncommitted_image.topics.by_name


def test_losing_leadership_forgets_what_is_not_committed_and_says_so() -> None:
    rig = Rig([0])
    answers = rig.submit(creation())

    rig.controller.on_not_leader()

    assert answers[0].topics[0].error_code == 41
    assert "t" not in rig.controller.uncommitted_image.topics.by_name
    assert not rig.controller.is_active
    assert rig.controller.epoch == -1
    assert rig.controller.next_deadline_ms is None
    rig.controller.tick(10**9, 0)
    assert rig.submit(creation())[0].topics[0].error_code == 41


def test_a_log_that_refuses_ends_the_term() -> None:
    rig = Rig([0])
    rig.log.epoch = 7

    answers = rig.submit(creation())

    assert answers[0].topics[0].error_code == 41
    assert not rig.controller.is_active


def test_a_log_that_refuses_ends_the_term_in_a_tick_too() -> None:
    rig = Rig([0, 1])
    rig.log.epoch = 7

    rig.now_ms += 100_000
    rig.controller.tick(rig.now_ms, 0)

    assert not rig.controller.is_active


def test_records_that_land_elsewhere_make_the_controller_resign() -> None:
    rig = Rig([0])
    rig.log.skew = 1

    answers = rig.submit(creation())

    assert rig.log.resigned == [1]
    assert answers[0].topics[0].error_code == 41
    assert not rig.controller.is_active


def test_a_standby_replays_what_is_committed() -> None:
    rig = Rig([0])
    rig.ask(creation())
    standby = Rig(is_active=False)

    for batch in [*rig.log.batches, rig.log.batches[0]]:
        standby.controller.on_batch(batch)

    assert standby.controller.image == rig.controller.image == replayed(rig.log.records)
    assert standby.controller.image.provenance.last_offset == rig.log.end_offset - 1


def test_an_active_controller_knows_its_own_batches() -> None:
    rig = Rig([0])
    answers = rig.submit(creation())

    rig.controller.on_batch(rig.log.batches[-1])

    assert answers[0].topics[0].error_code == 0


def test_a_transaction_left_open_is_aborted_by_the_next_controller() -> None:
    rig = Rig([0])
    standby = Rig(is_active=False)
    controller, log = standby.controller, standby.log
    for batch in rig.log.batches:
        controller.on_batch(batch)
    offset = rig.log.end_offset
    topic_id = Uuid(b"a" * 16)
    left: list[Message] = [
        BeginTransactionRecord(name="x"),
        TopicRecord(name="half", topic_id=topic_id),
    ]
    controller.on_batch(MetadataBatch(offset, 1, WALL_MS, 1, left))
    assert "half" in controller.uncommitted_image.topics.by_name
    assert "half" not in controller.image.topics.by_name

    log.end_offset, log.epoch = offset + 2, 2
    controller.on_leader(2, 0, 0)

    assert isinstance(log.batches[-1].records[0], AbortTransactionRecord)
    assert "half" not in controller.uncommitted_image.topics.by_name


@pytest.mark.parametrize(
    "records",
    [
        [EndTransactionRecord()],
        [AbortTransactionRecord()],
        [BeginTransactionRecord(), BeginTransactionRecord()],
    ],
)
def test_transactions_that_do_not_fit_are_refused(records: list[Message]) -> None:
    controller = Rig(is_active=False).controller

    with pytest.raises(UnreplayableRecord):
        controller.on_batch(MetadataBatch(0, 1, 0, 1, records))


def test_a_standby_starts_from_a_snapshot() -> None:
    rig = Rig([0])
    rig.ask(creation())
    controller = Rig(is_active=False).controller

    batch = MetadataBatch(0, 1, WALL_MS, 1, list(image_records(rig.controller.image)))
    controller.on_snapshot([batch], MetadataProvenance(500, 1, WALL_MS))

    assert controller.image == rig.controller.image
    assert controller.image.provenance.last_offset == 500
    assert rig.controller.image.topics.by_name["t"].id in controller.image.topics.by_id


def test_an_idle_controller_writes_a_record_every_500_ms() -> None:
    rig = Rig()
    before = rig.log.end_offset
    assert rig.controller.next_deadline_ms == 500

    rig.tick(499)
    assert rig.log.end_offset == before
    rig.tick(1)

    assert rig.log.records[before:] == [NoOpRecord()]
    assert rig.controller.next_deadline_ms == 1000


def test_a_busy_controller_writes_none() -> None:
    rig = Rig([0])
    rig.now_ms += 400
    rig.ask(creation())
    before = rig.log.end_offset

    rig.tick(400)

    assert rig.log.end_offset == before


def test_idle_records_can_be_switched_off() -> None:
    rig = Rig(metadata_max_idle_interval_ms=0)

    assert rig.controller.next_deadline_ms == 300_000


def test_a_large_change_that_need_not_be_atomic_is_split() -> None:
    rig = Rig([0, 1])
    for number in range(3):
        rig.create(f"t{number}", [[0, 1]] * 5000)
    batches = len(rig.log.batches)

    rig.fence(0)

    sizes = [len(batch.records) for batch in rig.log.batches[batches:]]
    assert sizes == [RECORDS_PER_BATCH_MAX, 5001]
    assert not rig.faults
    assert rig.controller.image == replayed(rig.log.records)


def test_a_decision_that_cannot_be_replayed_is_never_written() -> None:
    rig = Rig([0])
    term = rig.controller._term
    assert term is not None
    bad = PartitionChangeRecord(topic_id=Uuid(b"b" * 16), partition_id=0)
    term.controls.decide = lambda *_: _decision([bad])  # type: ignore[method-assign]  # A decision with a bug.
    before = rig.log.end_offset

    answers = rig.submit(AllocateProducerIdsRequest())

    assert answers[0].error_code == -1
    assert rig.log.end_offset == before
    assert "AllocateProducerIdsRequest" in rig.faults[0][0]
    assert rig.controller.is_active


def _decision(records: list[Message]) -> Any:
    return Decision(None, records)


def test_an_internal_decision_that_fails_is_reported() -> None:
    rig = Rig([0])
    term = rig.controller._term
    assert term is not None
    bad = PartitionChangeRecord(topic_id=Uuid(b"b" * 16), partition_id=0)
    term.controls.cluster.fence_expired = lambda broker_id: _decision([bad])  # type: ignore[method-assign]  # With a bug.

    rig.controller.tick(10_000, 0)

    assert "itself" in rig.faults[0][0]


def test_an_asker_that_is_gone_does_not_stop_the_others() -> None:
    rig = Rig([0])

    def gone(_: Message) -> None:
        raise ConnectionError("closed")

    rig.controller.handle(creation("a"), rig.context(7), gone)
    answers = rig.submit(creation("b"))
    rig.commit()

    assert answers[0].topics[0].error_code == 0
    assert "CreateTopicsRequest" in rig.faults[0][0]


@pytest.mark.parametrize("cls", sorted(CONTROLLER_REQUESTS, key=repr))
def test_every_request_has_an_answer_that_says_not_controller(cls: type[Message]) -> None:
    request = cls()
    for name, item in _ITEMS.get(cls.__name__, {}).items():
        setattr(request, name, [item])

    response = error_response(request, NotController())

    assert "41" in repr(response)
    response.encode(cls.VERSIONS.highest)


def _items() -> dict[str, dict[str, object]]:
    from millstream.protocol.messages import (
        alter_client_quotas,
        alter_configs,
        alter_user_scram_credentials,
        create_acls,
        create_partitions,
        create_topics,
        delete_acls,
        delete_topics,
        elect_leaders,
        incremental_alter_configs,
        update_features,
    )

    quota = alter_client_quotas.AlterClientQuotasRequestEntryData(
        entity=[alter_client_quotas.AlterClientQuotasRequestEntityData(entity_type="user")]
    )
    return {
        "AlterClientQuotasRequest": {"entries": quota},
        "AlterConfigsRequest": {"resources": alter_configs.AlterConfigsResource()},
        "AlterUserScramCredentialsRequest": {
            "deletions": alter_user_scram_credentials.ScramCredentialDeletion()
        },
        "CreateAclsRequest": {"creations": create_acls.AclCreation()},
        "CreatePartitionsRequest": {"topics": create_partitions.CreatePartitionsTopic()},
        "CreateTopicsRequest": {"topics": create_topics.CreatableTopic()},
        "DeleteAclsRequest": {"filters": delete_acls.DeleteAclsFilter()},
        "DeleteTopicsRequest": {"topics": delete_topics.DeleteTopicState()},
        "ElectLeadersRequest": {"topic_partitions": elect_leaders.TopicPartitions(partitions=[0])},
        "IncrementalAlterConfigsRequest": {
            "resources": incremental_alter_configs.AlterConfigsResource()
        },
        "UpdateFeaturesRequest": {"feature_updates": update_features.FeatureUpdateKey()},
    }


_ITEMS = _items()
