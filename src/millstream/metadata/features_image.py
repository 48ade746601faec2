"""Which level each feature has in this cluster.

Part of `MetadataImage`. `kraft.version` is not here: raft keeps it in its own control records.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_MIN,
    SUPPORTED_FEATURES,
)
from millstream.metadata.records import UnsupportedFeatureLevel
from millstream.protocol.messages.config_records import FeatureLevelRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True, slots=True)
class FeaturesImage:
    """The finalized levels; a feature at level 0 is absent."""

    levels: Mapping[str, int] = field(default_factory=dict)

    def level(self, name: str) -> int:
        """The level of a feature; 0 when it is off."""
        return self.levels.get(name, 0)

    @property
    def metadata_version(self) -> int:
        """What records may be written; before the first record the lowest."""
        return self.levels.get(METADATA_VERSION, METADATA_VERSION_MIN)

    @property
    def has_eligible_leader_replicas(self) -> bool:
        """Whether replicas that fell out of sync are remembered as eligible leaders."""
        return self.level(ELIGIBLE_LEADER_REPLICAS_VERSION) >= 1

    def to_records(self) -> Iterator[FeatureLevelRecord]:
        """The level of metadata.version first: it says how to read the rest."""
        if METADATA_VERSION in self.levels:
            yield FeatureLevelRecord(name=METADATA_VERSION, feature_level=self.metadata_version)
        for name in sorted(self.levels):
            if name != METADATA_VERSION:
                yield FeatureLevelRecord(name=name, feature_level=self.levels[name])


class FeaturesDelta:
    """Changes of feature levels."""

    def __init__(self, image: FeaturesImage) -> None:
        self.image = image
        self.changes: dict[str, int] = {}

    def replay_level(self, record: FeatureLevelRecord) -> None:
        """Set a level; 0 turns the feature off."""
        supported = SUPPORTED_FEATURES.get(record.name)
        if supported is not None and not supported.covers(record.feature_level):
            raise UnsupportedFeatureLevel(
                f"the cluster has {record.name} at level {record.feature_level}, "
                f"this software supports {supported}: start a newer version"
            )
        self.changes[record.name] = record.feature_level

    def finish_snapshot(self) -> None:
        """What a snapshot does not mention is gone."""
        for name in self.image.levels.keys() - self.changes.keys():
            self.changes[name] = 0

    def apply(self) -> FeaturesImage:
        """The new levels."""
        levels = {**self.image.levels, **self.changes}
        return FeaturesImage({name: level for name, level in levels.items() if level > 0})
