"""Batches and snapshots in, images to publishers out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.metadata.loader import MetadataLoader
from millstream.metadata.publisher import LeaderAndEpoch, LoaderManifest, ManifestKind
from millstream.metadata.records import MetadataBatch
from millstream.metadata.snapshots import image_records
from millstream.protocol.messages.log_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
)
from millstream.protocol.messages.topic_records import RemoveTopicRecord, TopicRecord
from millstream.types import OffsetAndEpoch
from tests.unit.metadata.examples import everything, image_of, uuid

if TYPE_CHECKING:
    from millstream.metadata.delta import MetadataDelta
    from millstream.metadata.image import MetadataImage
    from millstream.protocol.message import Message

BEGIN, END, ABORT = (
    BeginTransactionRecord(name="x"),
    EndTransactionRecord(),
    AbortTransactionRecord(),
)


class Recorder:
    """A publisher that remembers, and fails when told to."""

    def __init__(self, name: str = "recorder", journal: list[str] | None = None) -> None:
        self.name = name
        self.images: list[MetadataImage] = []
        self.deltas: list[MetadataDelta] = []
        self.manifests: list[LoaderManifest] = []
        self.leaders: list[LeaderAndEpoch] = []
        self.journal = [] if journal is None else journal
        self.is_broken = False
        self.is_closed = False

    def publish(self, delta: MetadataDelta, image: MetadataImage, manifest: LoaderManifest) -> None:
        self.journal.append(self.name)
        if self.is_broken:
            raise RuntimeError("broken")
        self.deltas.append(delta)
        self.images.append(image)
        self.manifests.append(manifest)

    def leader_changed(self, leader: LeaderAndEpoch) -> None:
        self.leaders.append(leader)

    def close(self) -> None:
        self.journal.append(f"close {self.name}")
        self.is_closed = True

    @property
    def topics(self) -> list[list[str]]:
        return [sorted(image.topics.by_name) for image in self.images]


class Setup:
    """A loader with one publisher and a log that it is fed from."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.loader = MetadataLoader(lambda problem, error: self.faults.append(problem))
        self.publisher = Recorder()
        self.offset = 0

    def batch(self, *records: Message, epoch: int = 1) -> MetadataBatch:
        batch = MetadataBatch(self.offset, epoch, 1000 + self.offset, 50, list(records))
        self.offset += len(records)
        return batch

    def load(self, *batches: MetadataBatch) -> None:
        self.loader.load_batches(batches, self.offset)


def topic(number: int) -> TopicRecord:
    return TopicRecord(name=f"t{number}", topic_id=uuid(number))


@pytest.fixture
def setup() -> Setup:
    setup = Setup()
    setup.loader.install([setup.publisher])
    return setup


def test_a_publisher_gets_everything_first_and_then_the_changes(setup: Setup) -> None:
    setup.load(setup.batch(topic(1)))
    setup.load(setup.batch(topic(2)), setup.batch(topic(3)))

    first, second = setup.publisher.manifests
    assert setup.publisher.topics == [["t1"], ["t1", "t2", "t3"]]
    assert (first.kind, second.kind) == (ManifestKind.SNAPSHOT, ManifestKind.LOG_DELTA)
    assert (second.batch_count, second.byte_count) == (2, 100)
    assert second.provenance.last_offset == 2
    assert set(setup.publisher.deltas[1].topics.created) == {uuid(2), uuid(3)}
    assert setup.loader.image is setup.publisher.images[-1]
    assert setup.loader.last_loaded_offset == 2


def test_nothing_is_published_before_the_log_is_caught_up_with(setup: Setup) -> None:
    setup.loader.load_batches([setup.batch(topic(1))], high_watermark=5)
    assert setup.publisher.images == []
    setup.loader.load_batches([setup.batch(topic(2), topic(3))], high_watermark=4)
    assert setup.publisher.images == []

    setup.loader.skip_control_batch(3, high_watermark=4)

    assert setup.publisher.topics == [["t1", "t2", "t3"]]


def test_an_empty_log_is_caught_up_with_at_once(setup: Setup) -> None:
    setup.loader.note_high_watermark(0)

    assert setup.publisher.topics == [[]]
    setup.loader.load_batches([], high_watermark=0)
    assert len(setup.publisher.images) == 1


def test_a_late_publisher_gets_the_whole_image_and_the_leader(setup: Setup) -> None:
    setup.load(setup.batch(topic(1)))
    setup.loader.leader_changed(LeaderAndEpoch(7, 1))
    late = Recorder("late")

    setup.loader.install([late])

    assert late.topics == [["t1"]]
    assert late.manifests[0].kind is ManifestKind.SNAPSHOT
    assert late.leaders == setup.publisher.leaders == [LeaderAndEpoch(7, 1)]
    assert setup.loader.leader == LeaderAndEpoch(7, 1)
    with pytest.raises(ValueError, match="late"):
        setup.loader.install([late])


def test_publishers_are_called_in_order_and_closed_in_reverse() -> None:
    setup = Setup()
    journal: list[str] = []
    publishers = [Recorder(name, journal) for name in "abc"]
    setup.loader.install(publishers)

    setup.load(setup.batch(topic(1)))
    setup.load(setup.batch(topic(2)))
    setup.loader.close()

    assert journal == [*"abcabc", "close c", "close b", "close a"]


def test_a_publisher_that_fails_is_reported_and_the_others_go_on() -> None:
    setup = Setup()
    bad, good = Recorder("bad"), Recorder("good")
    bad.is_broken = True
    setup.loader.install([bad, good])

    setup.load(setup.batch(topic(1)))
    setup.load(setup.batch(topic(2)))

    assert good.topics == [["t1"], ["t1", "t2"]]
    assert setup.faults == ["the metadata publisher bad failed while publishing"] * 2
    bad.is_broken = False
    setup.load(setup.batch(topic(3)))
    assert bad.topics == [["t1", "t2", "t3"]]


def test_a_removed_publisher_hears_nothing_more(setup: Setup) -> None:
    setup.load(setup.batch(topic(1)))

    setup.loader.remove_and_close(setup.publisher)
    setup.load(setup.batch(topic(2)))

    assert len(setup.publisher.images) == 1
    assert setup.publisher.is_closed


def test_a_record_that_does_not_fit_is_reported_and_skipped(setup: Setup) -> None:
    setup.load(setup.batch(topic(1), RemoveTopicRecord(topic_id=uuid(9)), topic(2)))

    assert setup.publisher.topics == [["t1", "t2"]]
    assert setup.faults == ["the metadata record RemoveTopicRecord at offset 1 was skipped"]


def test_a_transaction_is_published_when_it_ends(setup: Setup) -> None:
    setup.load(setup.batch(topic(1)))
    setup.load(setup.batch(BEGIN, topic(2)))
    setup.load(setup.batch(topic(3)))
    assert setup.publisher.topics == [["t1"]]
    assert setup.loader.last_loaded_offset == 3

    setup.load(setup.batch(END))

    assert setup.publisher.topics == [["t1"], ["t1", "t2", "t3"]]
    assert setup.publisher.manifests[-1].batch_count == 3
    assert setup.faults == []


def test_what_precedes_a_transaction_is_published_before_it(setup: Setup) -> None:
    setup.load(setup.batch(NoOpRecord()))
    setup.load(setup.batch(topic(1), BEGIN, topic(2)))

    assert setup.publisher.topics == [[], ["t1"]]
    assert not setup.publisher.manifests[-1].provenance.is_batch_aligned
    assert setup.publisher.manifests[-1].provenance.last_offset == 1


def test_an_aborted_transaction_never_was(setup: Setup) -> None:
    setup.load(setup.batch(topic(1)))
    setup.load(setup.batch(BEGIN, topic(2)), setup.batch(ABORT, topic(3)))

    assert setup.publisher.topics == [["t1"], ["t1", "t3"]]


def test_a_transaction_may_begin_and_end_in_one_batch(setup: Setup) -> None:
    setup.load(setup.batch(BEGIN, topic(1), END))

    assert setup.publisher.topics == [["t1"]]
    assert setup.faults == []


@pytest.mark.parametrize(
    ("records", "count"), [([END], 1), ([ABORT], 1), ([BEGIN, BEGIN, END], 1), ([BEGIN, END], 0)]
)
def test_transactions_that_do_not_fit_are_reported(
    setup: Setup, records: list[Message], count: int
) -> None:
    setup.load(setup.batch(*records))

    assert len(setup.faults) == count


def test_a_snapshot_replaces_everything(setup: Setup) -> None:
    setup.load(setup.batch(topic(9)))
    full = image_of(*everything())
    pieces = list(image_records(full))
    batches = [MetadataBatch(0, 4, 0, 1, pieces[:5]), MetadataBatch(5, 4, 0, 1, pieces[5:])]

    setup.loader.load_snapshot(batches, OffsetAndEpoch(4, 100), timestamp_ms=77)

    assert setup.loader.image == full
    assert setup.loader.last_loaded_offset == 99
    provenance = setup.publisher.manifests[-1].provenance
    assert (provenance.last_offset, provenance.last_epoch) == (99, 4)
    assert provenance.last_timestamp_ms == 77
    assert set(setup.publisher.deltas[-1].topics.deleted) == {uuid(9)}
    assert setup.publisher.manifests[-1].kind is ManifestKind.SNAPSHOT


def test_a_snapshot_ends_an_open_transaction(setup: Setup) -> None:
    setup.load(setup.batch(BEGIN, topic(1)))

    setup.loader.load_snapshot([], OffsetAndEpoch(1, 10), timestamp_ms=0)
    setup.offset = 10
    setup.load(setup.batch(topic(2)))

    assert setup.publisher.topics[-1] == ["t2"]
