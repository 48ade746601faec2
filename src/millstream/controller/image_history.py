"""The controller's state: the committed image, and the images after each uncommitted batch.

Decisions are made on the newest image, as if everything appended were committed, because the log
keeps the order: what comes later is committed only if what came before is. When leadership is lost
the uncommitted images are dropped; since images share what did not change, keeping them is cheap
and going back is one assignment. Nothing else in the controller holds replicated state.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from millstream.metadata.delta import MetadataDelta
from millstream.metadata.image import EMPTY_IMAGE, MetadataImage, MetadataProvenance
from millstream.metadata.records import UnreplayableRecord
from millstream.protocol.messages.log_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.metadata.records import MetadataBatch
    from millstream.protocol.message import Message


class _Point:
    """The state after a batch: the image, and the one before an open transaction."""

    __slots__ = ("before_transaction", "image")

    def __init__(self, image: MetadataImage, before_transaction: MetadataImage | None) -> None:
        self.image = image
        self.before_transaction = before_transaction


class ImageHistory:
    """Images by offset, from the last committed to the newest."""

    def __init__(self) -> None:
        self._committed = _Point(EMPTY_IMAGE, None)
        self._uncommitted: deque[_Point] = deque()

    @property
    def current(self) -> MetadataImage:
        """The state that decisions are made on."""
        return self._newest.image

    @property
    def committed(self) -> MetadataImage:
        """The state that may be shown: committed, and in no open transaction."""
        return self._committed.before_transaction or self._committed.image

    @property
    def committed_offset(self) -> int:
        """The last committed offset that was replayed."""
        return self._committed.image.provenance.last_offset

    @property
    def is_in_transaction(self) -> bool:
        """Whether the log, as far as it goes, ends in an open transaction."""
        return self._newest.before_transaction is not None

    def prepare(
        self, records: Sequence[Message], provenance: MetadataProvenance
    ) -> tuple[_Point, list[MetadataDelta]]:
        """Try records on the newest image, for nothing; UnreplayableRecord if they do not fit."""
        return _replay(self._newest, records, provenance)

    def push(self, point: _Point) -> None:
        """The prepared records are in the log, uncommitted."""
        self._uncommitted.append(point)

    def commit(self, last_offset: int) -> None:
        """Everything up to this offset is committed."""
        while self._uncommitted:
            if self._uncommitted[0].image.provenance.last_offset > last_offset:
                return
            self._committed = self._uncommitted.popleft()

    def revert(self) -> None:
        """Forget what is not committed."""
        self._uncommitted.clear()

    def replay_committed(self, batch: MetadataBatch) -> None:
        """Another controller's batch, committed."""
        assert not self._uncommitted
        if batch.last_offset <= self.committed_offset:
            return
        provenance = MetadataProvenance(batch.last_offset, batch.epoch, batch.timestamp_ms)
        self._committed, _ = _replay(self._committed, batch.records, provenance)

    def load_snapshot(
        self, batches: Iterable[MetadataBatch], provenance: MetadataProvenance
    ) -> None:
        """Begin anew from a snapshot."""
        delta = MetadataDelta(EMPTY_IMAGE)
        for batch in batches:
            delta.replay_all(batch.records)
        self._uncommitted.clear()
        self._committed = _Point(delta.apply(provenance), None)

    @property
    def _newest(self) -> _Point:
        return self._uncommitted[-1] if self._uncommitted else self._committed


def _replay(
    point: _Point, records: Sequence[Message], provenance: MetadataProvenance
) -> tuple[_Point, list[MetadataDelta]]:
    """The state after records, and the changes on the way."""
    base = point.before_transaction
    deltas = [MetadataDelta(point.image)]
    for record in records:
        match record:
            case BeginTransactionRecord():
                if base is not None:
                    raise UnreplayableRecord("a transaction begins inside another")
                base = deltas[-1].apply(provenance)
                deltas.append(MetadataDelta(base))
            case EndTransactionRecord() | AbortTransactionRecord():
                if base is None:
                    raise UnreplayableRecord("a transaction ends that never began")
                if isinstance(record, AbortTransactionRecord):
                    deltas.append(MetadataDelta(base))
                base = None
            case _:
                deltas[-1].replay(record)
    return _Point(deltas[-1].apply(provenance), base), deltas
