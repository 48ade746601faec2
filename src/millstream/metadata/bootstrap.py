"""The first records of a new cluster: what `bootstrap.checkpoint` holds.

Formatting a node writes them to the file; the first controller that becomes active in an empty log
writes them to the log. After that they are never looked at again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.errors import CorruptMessage, InvalidArgument
from millstream.metadata.checkpoints import decode_checkpoint, encode_checkpoint
from millstream.metadata.features import (
    FEATURES,
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_LATEST,
    default_levels,
    unmet_dependency,
)
from millstream.metadata.records import versioned
from millstream.protocol.messages.config_records import FeatureLevelRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from millstream.protocol.message import Message
    from millstream.types import ReadableBuffer

BOOTSTRAP_FILE_NAME: Final = "bootstrap.checkpoint"


@dataclass(frozen=True, slots=True)
class BootstrapMetadata:
    """The records a new cluster starts from, the level of metadata.version first."""

    records: tuple[Message, ...]
    source: str

    @property
    def metadata_version(self) -> int:
        """The level that the cluster starts with."""
        for record in self.records:
            if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
                return record.feature_level
        raise CorruptMessage(f"the bootstrap records of {self.source} set no {METADATA_VERSION}")


def bootstrap_metadata(
    metadata_version: int = METADATA_VERSION_LATEST,
    *,
    features: Mapping[str, int] | None = None,
    records: Iterable[Message] = (),
    source: str = "the defaults",
) -> BootstrapMetadata:
    """Feature levels of a release with some set otherwise, then further records (SCRAM users)."""
    levels = {**default_levels(metadata_version), **(features or {})}
    _check_levels(levels)
    ordered = [METADATA_VERSION, *sorted(levels.keys() - {METADATA_VERSION})]
    level_records = [
        FeatureLevelRecord(name=name, feature_level=levels[name])
        for name in ordered
        if levels[name] > 0
    ]
    return BootstrapMetadata((*level_records, *records), source)


def encode_bootstrap(bootstrap: BootstrapMetadata, timestamp_ms: int) -> bytes:
    """The content of `bootstrap.checkpoint`."""
    metadata_version = bootstrap.metadata_version
    return b"".join(
        encode_checkpoint(
            (versioned(record, metadata_version) for record in bootstrap.records),
            epoch=0,
            last_timestamp_ms=timestamp_ms,
        )
    )


def decode_bootstrap(data: ReadableBuffer, source: str) -> BootstrapMetadata:
    """Read `bootstrap.checkpoint`; CorruptMessage if it is damaged or sets no level."""
    try:
        bootstrap = BootstrapMetadata(tuple(decode_checkpoint(data).records), source)
        bootstrap.metadata_version  # noqa: B018 - Raises where the file lacks it.
    except CorruptMessage as error:
        raise CorruptMessage(
            f"{source} is damaged: {error}. Restore it from a backup or from another controller; "
            "it is read until the cluster's first records are in the metadata log"
        ) from error
    return bootstrap


def _check_levels(levels: Mapping[str, int]) -> None:
    for name, level in levels.items():
        feature = FEATURES.get(name)
        if feature is None or name == KRAFT_VERSION:
            known = ", ".join(sorted(FEATURES.keys() - {KRAFT_VERSION}))
            raise InvalidArgument(f"there is no feature {name!r} to set; known are {known}")
        if not feature.supported.covers(level):
            raise InvalidArgument(f"{name}={level}: supported are levels {feature.supported}")
        unmet = unmet_dependency(name, level, levels)
        if unmet is not None:
            raise InvalidArgument(unmet)
