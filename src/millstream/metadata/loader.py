"""`MetadataLoader`: committed batches and snapshots in, images to publishers out.

One per node, fed by whoever reads the committed part of the metadata log. Publishers are called in
the order in which they were installed, first when the log has been caught up with. Records inside
a metadata transaction are held back until it ends. A publisher that raises is reported and the
others go on; so is a record that does not fit. Nothing here reads a file or a clock.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from millstream.metadata.delta import MetadataDelta
from millstream.metadata.image import EMPTY_IMAGE, MetadataImage, MetadataProvenance
from millstream.metadata.publisher import LeaderAndEpoch, LoaderManifest, ManifestKind
from millstream.metadata.records import UnreplayableRecord
from millstream.metadata.snapshots import full_delta
from millstream.protocol.messages.log_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from millstream.metadata.publisher import MetadataPublisher
    from millstream.metadata.records import MetadataBatch
    from millstream.protocol.message import Message
    from millstream.types import OffsetAndEpoch


class MetadataLoader:
    """Builds images from the log and hands them on."""

    def __init__(self, on_fault: Callable[[str, Exception], None]) -> None:
        """`on_fault` gets a sentence and the cause; what to do about it is the node's policy."""
        self._on_fault = on_fault
        self._image = EMPTY_IMAGE
        self._delta = MetadataDelta(EMPTY_IMAGE)
        self._is_in_transaction = False
        self._last_loaded_offset = -1
        self._batch_count = 0
        self._byte_count = 0
        self._leader = LeaderAndEpoch()
        self._is_caught_up = False
        self._waiting: list[MetadataPublisher] = []
        self._publishers: list[MetadataPublisher] = []

    @property
    def image(self) -> MetadataImage:
        """What was published last, or would have been."""
        return self._image

    @property
    def last_loaded_offset(self) -> int:
        """The last offset that was taken in, be it in an open transaction."""
        return self._last_loaded_offset

    @property
    def leader(self) -> LeaderAndEpoch:
        """Who leads the quorum, as far as is known."""
        return self._leader

    def install(self, publishers: Iterable[MetadataPublisher]) -> None:
        """Add publishers; each gets the whole image as soon as it is current."""
        for publisher in publishers:
            if publisher in self._waiting or publisher in self._publishers:
                raise ValueError(f"the publisher {publisher.name} is installed already")
            self._waiting.append(publisher)
        self._initialize_waiting()

    def remove_and_close(self, publisher: MetadataPublisher) -> None:
        """Tell a publisher nothing more."""
        for installed in (self._waiting, self._publishers):
            if publisher in installed:
                installed.remove(publisher)
                self._guarded(publisher, "closing", publisher.close)

    def load_batches(self, batches: Sequence[MetadataBatch], high_watermark: int) -> None:
        """Take in committed batches and publish what came of them, once.

        `high_watermark` is how far the log is committed as a whole: publishing begins when
        everything below it has been loaded.
        """
        for batch in batches:
            self._load_batch(batch)
        if not self._is_in_transaction:
            self._publish_log(is_batch_aligned=True, last=batches[-1] if batches else None)
        self._note_progress(high_watermark)

    def skip_control_batch(self, last_offset: int, high_watermark: int) -> None:
        """Raft's own records move the offset and nothing else."""
        self._last_loaded_offset = last_offset
        self._note_progress(high_watermark)

    def load_snapshot(
        self, batches: Iterable[MetadataBatch], snapshot_id: OffsetAndEpoch, timestamp_ms: int
    ) -> None:
        """Replace everything by what a snapshot says."""
        # An open transaction, if there was one, ended before the snapshot's end.
        self._is_in_transaction = False
        delta = MetadataDelta(self._image)
        for batch in batches:
            for record in batch.records:
                self._replay(delta, record, batch.base_offset)
        delta.finish_snapshot()
        provenance = MetadataProvenance(
            snapshot_id.offset - 1, snapshot_id.epoch, timestamp_ms, is_batch_aligned=True
        )
        self._last_loaded_offset = snapshot_id.offset - 1
        self._publish(delta, LoaderManifest(ManifestKind.SNAPSHOT, provenance, self._leader))

    def note_high_watermark(self, high_watermark: int) -> None:
        """The log is committed up to here; there may be nothing to load."""
        self._note_progress(high_watermark)

    def leader_changed(self, leader: LeaderAndEpoch) -> None:
        """Tell everybody who leads now."""
        self._leader = leader
        for publisher in [*self._publishers]:
            self._guarded(
                publisher, "learning of the leader", partial(publisher.leader_changed, leader)
            )

    def close(self) -> None:
        """Close all publishers, the last one first."""
        for publisher in [*self._publishers, *self._waiting][::-1]:
            self.remove_and_close(publisher)

    def _load_batch(self, batch: MetadataBatch) -> None:
        offset = batch.base_offset
        for record in batch.records:
            match record:
                case BeginTransactionRecord():
                    self._begin_transaction(batch, offset)
                case EndTransactionRecord():
                    self._end_transaction(offset)
                case AbortTransactionRecord():
                    self._abort_transaction(offset)
                case _:
                    self._replay(self._delta, record, offset)
            self._last_loaded_offset = offset
            offset += 1
        self._batch_count += 1
        self._byte_count += batch.size

    def _begin_transaction(self, batch: MetadataBatch, offset: int) -> None:
        if self._is_in_transaction:
            self._report_fault(offset, "a transaction begins inside another")
        elif not self._delta.is_empty:
            # What came before the transaction must not wait for its end, nor die with it.
            self._publish_log(is_batch_aligned=offset == batch.base_offset, last=batch)
        self._is_in_transaction = True

    def _end_transaction(self, offset: int) -> None:
        if not self._is_in_transaction:
            self._report_fault(offset, "a transaction ends that never began")
        self._is_in_transaction = False

    def _abort_transaction(self, offset: int) -> None:
        if not self._is_in_transaction:
            self._report_fault(offset, "a transaction is aborted that never began")
        self._is_in_transaction = False
        self._delta = MetadataDelta(self._image)

    def _replay(self, delta: MetadataDelta, record: Message, offset: int) -> None:
        try:
            delta.replay(record)
        except Exception as error:
            self._on_fault(
                f"the metadata record {type(record).__name__} at offset {offset} was skipped",
                error,
            )

    def _report_fault(self, offset: int, problem: str) -> None:
        self._on_fault(f"at metadata offset {offset} {problem}", UnreplayableRecord(problem))

    def _publish_log(self, *, is_batch_aligned: bool, last: MetadataBatch | None) -> None:
        if last is None:
            return
        provenance = MetadataProvenance(
            self._last_loaded_offset, last.epoch, last.timestamp_ms, is_batch_aligned
        )
        manifest = LoaderManifest(
            ManifestKind.LOG_DELTA, provenance, self._leader, self._batch_count, self._byte_count
        )
        self._publish(self._delta, manifest)

    def _publish(self, delta: MetadataDelta, manifest: LoaderManifest) -> None:
        image = delta.apply(manifest.provenance)
        self._image = image
        self._delta = MetadataDelta(image)
        self._batch_count = self._byte_count = 0
        for publisher in [*self._publishers]:
            self._guarded(
                publisher, "publishing", partial(publisher.publish, delta, image, manifest)
            )

    def _note_progress(self, high_watermark: int) -> None:
        if self._last_loaded_offset >= high_watermark - 1:
            self._is_caught_up = True
            self._initialize_waiting()

    def _initialize_waiting(self) -> None:
        if not self._is_caught_up or not self._waiting:
            return
        manifest = LoaderManifest(ManifestKind.SNAPSHOT, self._image.provenance, self._leader)
        image, delta = self._image, full_delta(self._image)
        for publisher in self._waiting[:]:
            self._waiting.remove(publisher)
            self._publishers.append(publisher)
            self._guarded(
                publisher, "publishing", partial(publisher.publish, delta, image, manifest)
            )
            if self._leader.leader_id is not None:
                self._guarded(
                    publisher,
                    "learning of the leader",
                    partial(publisher.leader_changed, self._leader),
                )

    def _guarded(self, publisher: MetadataPublisher, doing: str, act: Callable[[], None]) -> None:
        """One publisher's fault must not keep the metadata from the others."""
        try:
            act()
        except Exception as error:
            self._on_fault(f"the metadata publisher {publisher.name} failed while {doing}", error)
