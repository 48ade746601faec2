"""The next producer id that no broker was given yet. Part of `MetadataImage`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.protocol.messages.config_records import ProducerIdsRecord

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class ProducerIdsImage:
    """Ids below `next_producer_id` are used or lost; -1 before the first block."""

    next_producer_id: int = -1

    @property
    def next_block_start(self) -> int:
        """Where the next block begins."""
        return max(self.next_producer_id, 0)

    def to_records(self) -> Iterator[ProducerIdsRecord]:
        """One record, if a block was ever given."""
        if self.next_producer_id >= 0:
            yield ProducerIdsRecord(
                broker_id=-1, broker_epoch=-1, next_producer_id=self.next_producer_id
            )


class ProducerIdsDelta:
    """A change of the next id."""

    def __init__(self, image: ProducerIdsImage) -> None:
        self.image = image
        self.next_producer_id = image.next_producer_id

    def replay_producer_ids(self, record: ProducerIdsRecord) -> None:
        """A block was given to a broker."""
        self.next_producer_id = record.next_producer_id

    def finish_snapshot(self) -> None:
        """Ids are never given twice, so a snapshot without them changes nothing."""

    def apply(self) -> ProducerIdsImage:
        """The next id after the change."""
        return ProducerIdsImage(self.next_producer_id)
