"""From an image back to records, and when a snapshot is due.

`SnapshotEmitter` writes an image as records in Kafka's order; replaying them on nothing gives the
same image. `SnapshotGenerator` is a publisher that counts what went through and says when to emit.
Writing the file is done by the function it is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.config import ConfigType, at_least, key, validate
from millstream.metadata.checkpoints import encode_checkpoint
from millstream.metadata.delta import MetadataDelta
from millstream.metadata.image import EMPTY_IMAGE
from millstream.metadata.publisher import ManifestKind
from millstream.metadata.records import versioned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.metadata.image import MetadataImage
    from millstream.metadata.publisher import LeaderAndEpoch, LoaderManifest
    from millstream.metadata.records import VersionedRecord
    from millstream.protocol.message import Message
    from millstream.protocol.messages.control_records import VotersRecord

_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotConfig:
    """When a snapshot of the metadata log is taken."""

    bytes_between: int = key(
        "metadata.log.max.record.bytes.between.snapshots",
        20 << 20,
        at_least(1),
        "Take a snapshot when this much was written to the metadata log since the last one.",
        kind=ConfigType.LONG,
        unit="bytes",
    )
    interval_ms: int = key(
        "metadata.log.max.snapshot.interval.ms",
        _HOUR_MS,
        at_least(0),
        "Take a snapshot when something was written and the last one is this old; 0 is never.",
        kind=ConfigType.LONG,
        unit="ms",
    )

    def __post_init__(self) -> None:
        validate(self)


def image_records(image: MetadataImage) -> Iterator[Message]:
    """The records that make up an image, in Kafka's order: features first."""
    metadata_version = image.metadata_version
    yield from image.features.to_records()
    yield from image.cluster.to_records(metadata_version)
    yield from image.topics.to_records(metadata_version)
    yield from image.configs.to_records()
    yield from image.client_quotas.to_records()
    yield from image.producer_ids.to_records()
    yield from image.acls.to_records()
    yield from image.scram.to_records()
    yield from image.delegation_tokens.to_records()


def full_delta(image: MetadataImage) -> MetadataDelta:
    """Everything an image says as a change from nothing: what a new publisher gets first."""
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay_all(image_records(image))
    delta.finish_snapshot()
    return delta


class SnapshotEmitter:
    """Writes images as snapshots."""

    def records(self, image: MetadataImage) -> Iterator[VersionedRecord]:
        """The image's records in the versions that its metadata.version allows."""
        metadata_version = image.metadata_version
        return (versioned(record, metadata_version) for record in image_records(image))

    def emit(
        self,
        image: MetadataImage,
        *,
        kraft_version: int | None = None,
        voters: VotersRecord | None = None,
    ) -> Iterator[bytes]:
        """The pieces of the checkpoint file named by `image.provenance.snapshot_id`."""
        return encode_checkpoint(
            self.records(image),
            epoch=image.provenance.last_epoch,
            last_timestamp_ms=image.provenance.last_timestamp_ms,
            kraft_version=kraft_version,
            voters=voters,
        )


class SnapshotGenerator:
    """The publisher that decides when a snapshot is due."""

    name = "snapshot generator"

    def __init__(
        self,
        config: SnapshotConfig,
        write: Callable[[MetadataImage, str], None],
        monotonic_ms: Callable[[], int],
    ) -> None:
        """`write` gets the image and the reason; it must not keep the loader waiting long."""
        self._config = config
        self._write = write
        self._monotonic_ms = monotonic_ms
        self._bytes_since = 0
        self._last_ms = monotonic_ms()

    def publish(self, delta: MetadataDelta, image: MetadataImage, manifest: LoaderManifest) -> None:
        """Count what came, and ask for a snapshot when it is enough."""
        if manifest.kind is ManifestKind.SNAPSHOT:
            self._start_over()
            return
        self._bytes_since += manifest.byte_count
        reason = self._due_reason()
        # A snapshot ends where a batch ends; inside of one, the next publication is as good.
        if reason is not None and manifest.provenance.is_batch_aligned:
            self._start_over()
            self._write(image, reason)

    def leader_changed(self, leader: LeaderAndEpoch) -> None:
        """Every node takes its own snapshots, whoever leads."""

    def close(self) -> None:
        """Nothing to release."""

    def _start_over(self) -> None:
        self._bytes_since = 0
        self._last_ms = self._monotonic_ms()

    def _due_reason(self) -> str | None:
        if self._bytes_since >= self._config.bytes_between:
            return f"{self._bytes_since} bytes since the last one"
        age_ms = self._monotonic_ms() - self._last_ms
        if self._config.interval_ms and self._bytes_since and age_ms >= self._config.interval_ms:
            return f"{age_ms} ms since the last one"
        return None
