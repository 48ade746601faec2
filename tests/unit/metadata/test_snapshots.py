"""Images to records and back, checkpoint bytes, bootstrap records, when a snapshot is due."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.errors import CorruptMessage, InvalidArgument
from millstream.metadata.bootstrap import (
    BootstrapMetadata,
    bootstrap_metadata,
    decode_bootstrap,
    encode_bootstrap,
)
from millstream.metadata.checkpoints import decode_checkpoint, encode_checkpoint
from millstream.metadata.delta import MetadataDelta
from millstream.metadata.features import (
    default_levels,
    loses_metadata,
    metadata_version_name,
    parse_metadata_version,
)
from millstream.metadata.image import EMPTY_IMAGE, MetadataProvenance
from millstream.metadata.publisher import LeaderAndEpoch, LoaderManifest, ManifestKind
from millstream.metadata.records import (
    UnreplayableRecord,
    VersionedRecord,
    decode_batch,
    encode_record,
    versioned,
)
from millstream.metadata.snapshots import (
    SnapshotConfig,
    SnapshotEmitter,
    SnapshotGenerator,
    full_delta,
    image_records,
)
from millstream.protocol.messages import broker_records, config_records, topic_records
from millstream.protocol.messages.control_records import VotersRecord, VotersRecordVoter
from millstream.protocol.messages.log_records import NoOpRecord
from millstream.records.batch import RecordBatch
from millstream.records.builder import RecordBatchBuilder
from millstream.types import OffsetAndEpoch
from tests.unit.metadata.examples import everything, image_of, partition, register, uuid

FULL = image_of(*everything())


def test_an_image_written_and_read_is_the_same_image() -> None:
    assert image_of(*image_records(FULL)) == FULL
    assert list(image_records(EMPTY_IMAGE)) == []


def test_records_come_in_kafkas_order() -> None:
    kinds = list(dict.fromkeys(type(record).__name__ for record in image_records(FULL)))

    assert kinds == [
        "FeatureLevelRecord",
        "RegisterBrokerRecord",
        "RegisterControllerRecord",
        "TopicRecord",
        "PartitionRecord",
        "ConfigRecord",
        "ClientQuotaRecord",
        "ProducerIdsRecord",
        "AccessControlEntryRecord",
        "UserScramCredentialRecord",
        "DelegationTokenRecord",
    ]
    first = next(image_records(FULL))
    assert first == config_records.FeatureLevelRecord(name="metadata.version", feature_level=30)


@pytest.mark.parametrize("level", [7, 8, 16, 17, 22, 23, 29, 30])
def test_an_image_of_any_metadata_version_can_be_encoded(level: int) -> None:
    records = everything()
    records[0] = config_records.FeatureLevelRecord(name="metadata.version", feature_level=level)
    image = image_of(*records)

    for record in SnapshotEmitter().records(image):
        encode_record(record)


def test_records_have_the_version_that_a_metadata_version_allows() -> None:
    cases: list[tuple[Any, dict[int, int]]] = [
        (topic_records.PartitionRecord(), {7: 0, 16: 0, 17: 1, 22: 1, 23: 2, 30: 2}),
        (topic_records.PartitionChangeRecord(), {16: 0, 17: 1, 23: 2}),
        (broker_records.RegisterBrokerRecord(), {7: 1, 8: 2, 16: 2, 17: 3, 29: 3, 30: 4}),
        (broker_records.BrokerRegistrationChangeRecord(), {7: 1, 17: 2, 30: 3}),
        (topic_records.TopicRecord(), {7: 0, 30: 0}),
    ]
    for record, expected in cases:
        assert {level: versioned(record, level).version for level in expected} == expected


def test_a_full_delta_brings_everything() -> None:
    delta = full_delta(FULL)

    assert delta.apply(MetadataProvenance()) == FULL
    assert set(delta.topics.created) == set(FULL.topics.by_id)


def test_a_snapshot_removes_what_it_does_not_mention() -> None:
    smaller = image_of(
        config_records.FeatureLevelRecord(name="metadata.version", feature_level=30),
        register(3, epoch=11),
        topic_records.TopicRecord(name="u", topic_id=uuid(2)),
        partition(uuid(2), 0, [3]),
    )
    delta = MetadataDelta(FULL)
    delta.replay_all(image_records(smaller))
    delta.finish_snapshot()

    after = delta.apply(MetadataProvenance())

    expected = image_of(config_records.ProducerIdsRecord(next_producer_id=1000), base=smaller)
    assert after == expected
    assert set(delta.topics.deleted) == {uuid(1)}
    assert not delta.topics.changed  # "u" is as it was


VOTERS = VotersRecord(version=0, voters=[VotersRecordVoter(voter_id=1, voter_directory_id=uuid(3))])


def test_a_checkpoint_is_written_and_read() -> None:
    pieces = list(SnapshotEmitter().emit(FULL, kraft_version=1, voters=VOTERS))

    found = decode_checkpoint(b"".join(pieces))

    assert len(pieces) == 3
    assert image_of(*found.records) == FULL
    assert (found.kraft_version, found.voters) == (1, VOTERS)
    assert found.last_timestamp_ms == 1000
    first = RecordBatch(pieces[1])
    assert (first.base_offset, first.leader_epoch) == (3, 1)


def test_a_large_checkpoint_comes_in_several_batches() -> None:
    record = config_records.ConfigRecord(
        resource_type=2, resource_name="t", name="n", value="x" * 30_000
    )

    pieces = list(
        encode_checkpoint([VersionedRecord(record, 0)] * 100, epoch=4, last_timestamp_ms=1)
    )

    found = decode_checkpoint(b"".join(pieces))
    assert len(pieces) == 5
    assert max(map(len, pieces)) < 1_100_000
    assert len(list(found.records)) == 100
    offsets = [(batch.base_offset, batch.epoch) for batch in found.batches]
    assert offsets == [(1, 4), (35, 4), (69, 4)]
    assert (found.kraft_version, found.voters) == (None, None)


def test_an_empty_checkpoint_has_begin_and_end() -> None:
    pieces = list(encode_checkpoint([], epoch=0, last_timestamp_ms=7))

    assert decode_checkpoint(b"".join(pieces)).last_timestamp_ms == 7


def test_a_damaged_checkpoint_is_refused() -> None:
    pieces = list(SnapshotEmitter().emit(FULL))
    whole = b"".join(pieces)
    flipped = bytearray(whole)
    flipped[len(pieces[0]) + 100] ^= 1

    for bad, problem in [
        (whole[:-1], "cut off"),
        (b"".join(pieces[:2]), "cut off"),
        (b"".join(pieces[1:]), "begin"),
        (pieces[2], "no header"),
        (whole + pieces[1], "goes on"),
        (whole + b"\0" * 5, "cut off"),
        (bytes(flipped), "checksum"),
        (b"", "cut off"),
    ]:
        with pytest.raises(CorruptMessage, match=problem):
            decode_checkpoint(bad)


def test_a_checkpoint_of_an_old_format_is_refused() -> None:
    legacy = bytearray(30)
    legacy[8:12] = (18).to_bytes(4, "big")
    legacy[16] = 1

    with pytest.raises(CorruptMessage):
        decode_checkpoint(bytes(legacy))


def test_a_record_without_value_is_refused() -> None:
    builder = RecordBatchBuilder()
    builder.append(0, None, None)

    with pytest.raises(UnreplayableRecord, match="no value"):
        decode_batch(RecordBatch(builder.build()))


def test_a_batch_of_the_log_is_decoded() -> None:
    builder = RecordBatchBuilder()
    builder.append(5, None, encode_record(VersionedRecord(NoOpRecord(), 0)))
    builder.append(6, None, encode_record(VersionedRecord(topic_records.TopicRecord(name="t"), 0)))

    batch = decode_batch(RecordBatch(builder.build(base_offset=10, leader_epoch=3)))

    assert (batch.base_offset, batch.last_offset, batch.epoch, batch.timestamp_ms) == (10, 11, 3, 6)
    assert batch.records == [NoOpRecord(), topic_records.TopicRecord(name="t")]


def test_the_bootstrap_records_of_4_3() -> None:
    levels = {record.name: record.feature_level for record in bootstrap_metadata().records}  # type: ignore[attr-defined]

    assert levels == {
        "metadata.version": 30,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "share.version": 1,
        "transaction.version": 2,
    }
    assert next(iter(levels)) == "metadata.version"


def test_bootstrap_records_are_written_and_read() -> None:
    user = everything()[-2]
    bootstrap = bootstrap_metadata(29, features={"group.version": 0}, records=[user])

    found = decode_bootstrap(encode_bootstrap(bootstrap, 5), "a file")

    assert found.records == bootstrap.records
    assert (found.metadata_version, found.source) == (29, "a file")
    assert found.records[-1] == user
    assert "group.version" not in repr(found.records)


@pytest.mark.parametrize("damage", ["flipped", "cut off", "emptied", "zeroed"])
def test_damaged_bootstrap_records_name_their_file(damage: str) -> None:
    data = bytearray(encode_bootstrap(bootstrap_metadata(), 5))
    if damage == "flipped":
        data[len(data) // 2] ^= 1
    else:
        data = {"cut off": data[:-3], "emptied": bytearray(), "zeroed": bytearray(len(data))}[
            damage
        ]

    with pytest.raises(CorruptMessage, match=r"/data/bootstrap\.checkpoint is damaged: .* backup"):
        decode_bootstrap(data, "/data/bootstrap.checkpoint")


def test_bootstrap_records_must_set_a_metadata_version() -> None:
    empty = b"".join(encode_checkpoint([], epoch=0, last_timestamp_ms=0))

    with pytest.raises(CorruptMessage, match=r"metadata\.version"):
        decode_bootstrap(empty, "a file")
    with pytest.raises(CorruptMessage, match="here"):
        _ = BootstrapMetadata((NoOpRecord(),), "here").metadata_version


@pytest.mark.parametrize(
    "features",
    [{"group.version": 9}, {"nonsense": 1}, {"kraft.version": 1}],
)
def test_bootstrap_levels_are_checked(features: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument):
        bootstrap_metadata(features=features)


def test_bootstrap_levels_must_go_together() -> None:
    with pytest.raises(InvalidArgument, match=r"4\.0-IV1"):
        bootstrap_metadata(22, features={"eligible.leader.replicas.version": 1})
    with pytest.raises(InvalidArgument, match="7 to 30"):
        bootstrap_metadata(6)


def test_metadata_versions_have_names() -> None:
    assert metadata_version_name(30) == "4.3-IV0"
    assert metadata_version_name(99) == "99"
    assert parse_metadata_version("4.0") == 25
    assert parse_metadata_version("3.7-IV2") == 17
    with pytest.raises(InvalidArgument, match=r"3\.3-IV3 to 4\.3-IV0"):
        parse_metadata_version("2.8")


def test_default_levels_follow_the_metadata_version() -> None:
    assert default_levels(21) == {"metadata.version": 21}
    assert default_levels(24) == {
        "metadata.version": 24,
        "transaction.version": 2,
        "group.version": 1,
    }
    assert loses_metadata(30, 29)
    assert not loses_metadata(29, 23)


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def log_manifest(size: int, *, is_aligned: bool = True) -> LoaderManifest:
    provenance = MetadataProvenance(1, 1, 1, is_aligned)
    return LoaderManifest(ManifestKind.LOG_DELTA, provenance, LeaderAndEpoch(), 1, size)


def test_a_snapshot_is_due_after_so_many_bytes() -> None:
    written: list[str] = []
    generator = SnapshotGenerator(
        SnapshotConfig(bytes_between=100), lambda image, reason: written.append(reason), Clock()
    )
    delta = MetadataDelta(FULL)

    generator.publish(delta, FULL, log_manifest(60))
    generator.publish(delta, FULL, log_manifest(60, is_aligned=False))
    assert written == []
    generator.publish(delta, FULL, log_manifest(1))
    assert written == ["121 bytes since the last one"]
    generator.publish(delta, FULL, log_manifest(60))
    assert len(written) == 1


def test_a_snapshot_is_due_after_an_hour_with_changes() -> None:
    written: list[str] = []
    clock = Clock()
    generator = SnapshotGenerator(
        SnapshotConfig(), lambda image, reason: written.append(reason), clock
    )
    delta = MetadataDelta(FULL)

    clock.now = 3_600_000
    generator.publish(delta, FULL, log_manifest(0))
    assert written == []
    generator.publish(delta, FULL, log_manifest(1))
    assert written == ["3600000 ms since the last one"]
    clock.now = 9_000_000
    manifest = LoaderManifest(ManifestKind.SNAPSHOT, MetadataProvenance(), LeaderAndEpoch())
    generator.publish(delta, FULL, manifest)
    generator.publish(delta, FULL, log_manifest(1))
    generator.leader_changed(LeaderAndEpoch(1, 1))
    generator.close()
    assert len(written) == 1


def test_the_name_of_a_snapshot_is_its_end() -> None:
    assert MetadataProvenance(41, 3).snapshot_id == OffsetAndEpoch(3, 42)
