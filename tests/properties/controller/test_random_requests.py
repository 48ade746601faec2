"""Whatever is asked in whatever order: the state is sound, and the log says all of it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from millstream.metadata.delta import MetadataDelta
from millstream.metadata.image import EMPTY_IMAGE, MetadataProvenance
from millstream.metadata.loader import MetadataLoader
from millstream.metadata.snapshots import image_records
from millstream.types import OffsetAndEpoch
from tests.properties.controller.operations import (
    OPERATIONS,
    check_image,
    check_index,
    perform,
)
from tests.unit.controller.rig import Rig, replayed

ELR = "eligible.leader.replicas.version"
SETUPS = st.sampled_from([(30, 1), (30, 0), (22, 0), (16, 0), (11, 0)])
"""metadata.version and whether eligible leader replicas are kept."""


def cluster(setup: tuple[int, int]) -> Rig:
    """Four brokers and two topics: enough for something to happen from the first operation on."""
    metadata_version, elr = setup
    rig = Rig(range(4), metadata_version=metadata_version, features={ELR: elr})
    rig.create("a", [[0, 1, 2], [1, 2, 0]], min_insync_replicas="2")
    rig.create("b", [[2, 0]])
    return rig


@given(SETUPS, st.lists(OPERATIONS, min_size=10, max_size=40))
def test_the_state_is_sound_after_every_operation(
    setup: tuple[int, int], operations: list[tuple[Any, ...]]
) -> None:
    rig = cluster(setup)

    for operation in operations:
        before = rig.image
        perform(rig, operation)
        check_image(rig.image)
        check_epochs(before, rig.image)
        assert not rig.faults

    check_index(rig)
    assert rig.image == rig.controller.image == replayed(rig.log.records)


def check_epochs(before: Any, after: Any) -> None:
    """Epochs only rise, and any change raises the partition epoch."""
    for topic_id, topic in before.topics.by_id.items():
        if topic_id not in after.topics.by_id:
            continue
        for number, old in topic.partitions.items():
            new = after.topics.by_id[topic_id].partitions[number]
            assert new.leader_epoch >= old.leader_epoch
            assert new.partition_epoch >= old.partition_epoch
            if new.leader != old.leader:
                assert new.leader_epoch > old.leader_epoch
            if (new.isr, new.replicas) != (old.isr, old.replicas):
                assert new.partition_epoch > old.partition_epoch


@given(st.lists(OPERATIONS, min_size=5, max_size=30))
def test_topics_and_their_settings_are_what_a_simple_model_says(
    operations: list[tuple[Any, ...]],
) -> None:
    rig = cluster((30, 1))
    partitions = {"a": 2, "b": 1}
    minima = {"a": "2"}
    for operation in operations:
        before = rig.log.end_offset
        perform(rig, operation)
        has_written = rig.log.end_offset > before
        match operation:
            case ("create", name, count, _) if has_written:
                assert name not in partitions
                partitions[name] = max(count, 1)
            case ("assign", name, assignments) if has_written:
                assert name not in partitions
                partitions[name] = len(assignments) or 1
            case ("delete", name):
                assert has_written == (name in partitions)
                partitions.pop(name, None)
                minima.pop(name, None)
            case ("grow", name, count) if has_written:
                assert count > partitions[name]
                partitions[name] = count
            case ("configure", name, value) if name in partitions and value != "x":
                if value is None:
                    minima.pop(name, None)
                else:
                    minima[name] = value

    found = {name: len(topic.partitions) for name, topic in rig.image.topics.by_name.items()}
    assert found == partitions
    settings = {
        name: rig.image.configs.of(2, name).get("min.insync.replicas") for name in partitions
    }
    assert {name: value for name, value in settings.items() if value is not None} == minima


@given(SETUPS, st.lists(OPERATIONS, min_size=5, max_size=30), st.data())
def test_image_to_records_to_image_is_identity_at_every_offset(
    setup: tuple[int, int], operations: list[tuple[Any, ...]], data: st.DataObject
) -> None:
    rig = cluster(setup)
    for operation in operations:
        perform(rig, operation)
    batches = rig.log.batches
    cut = data.draw(st.integers(0, len(batches)))
    early = replayed([record for batch in batches[:cut] for record in batch.records])
    late = rig.controller.image

    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay_all(image_records(late))
    assert delta.apply(MetadataProvenance()) == late

    # Loading the later snapshot on top of the earlier state comes to the same.
    onto = MetadataDelta(early)
    onto.replay_all(image_records(late))
    onto.finish_snapshot()
    assert onto.apply(MetadataProvenance()) == late


@given(st.lists(OPERATIONS, min_size=5, max_size=20), st.data())
def test_a_loader_comes_to_the_same_image_however_it_is_fed(
    operations: list[tuple[Any, ...]], data: st.DataObject
) -> None:
    rig = cluster((30, 1))
    for operation in operations:
        perform(rig, operation)
    batches = rig.log.batches
    faults: list[str] = []
    loader = MetadataLoader(lambda problem, error: faults.append(problem))

    position = 0
    if data.draw(st.booleans()):
        position = data.draw(st.integers(1, len(batches)))
        prefix = replayed([record for batch in batches[:position] for record in batch.records])
        snapshot = batches[0].__class__(0, 1, 0, 1, list(image_records(prefix)))
        end = OffsetAndEpoch(1, batches[position - 1].last_offset + 1)
        loader.load_snapshot([snapshot], end, timestamp_ms=0)
    while position < len(batches):
        step = data.draw(st.integers(1, 5))
        loader.load_batches(batches[position : position + step], rig.log.end_offset)
        position += step

    assert faults == []
    assert loader.image == rig.controller.image
    assert loader.last_loaded_offset == rig.log.end_offset - 1
