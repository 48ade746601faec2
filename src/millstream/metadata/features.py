"""The features of Kafka 4.3 that a cluster can raise or lower, and what hangs on their levels.

The controller checks updates against this table, nodes register with it, the bootstrap records are
made from it. Which levels a cluster has right now is in `features_image`.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from millstream.errors import InvalidArgument
from millstream.protocol.notation import VersionRange

if TYPE_CHECKING:
    from collections.abc import Mapping

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"
ELIGIBLE_LEADER_REPLICAS_VERSION: Final = "eligible.leader.replicas.version"
SHARE_VERSION: Final = "share.version"
STREAMS_VERSION: Final = "streams.version"

UNSERVED_FEATURES: Final = frozenset({STREAMS_VERSION})
"""Features of Apache Kafka that are not served here. A cluster that Apache Kafka formatted may have
them: their levels are kept for it, offered to nobody, and no node need support them."""

METADATA_VERSION_NAMES: Final[Mapping[int, str]] = MappingProxyType(
    {
        7: "3.3-IV3",
        8: "3.4-IV0",
        9: "3.5-IV0",
        10: "3.5-IV1",
        11: "3.5-IV2",
        12: "3.6-IV0",
        13: "3.6-IV1",
        14: "3.6-IV2",
        15: "3.7-IV0",
        16: "3.7-IV1",
        17: "3.7-IV2",
        18: "3.7-IV3",
        19: "3.7-IV4",
        20: "3.8-IV0",
        21: "3.9-IV0",
        22: "4.0-IV0",
        23: "4.0-IV1",
        24: "4.0-IV2",
        25: "4.0-IV3",
        26: "4.1-IV0",
        27: "4.1-IV1",
        28: "4.2-IV0",
        29: "4.2-IV1",
        30: "4.3-IV0",
    }
)
"""What users call the levels of metadata.version."""

METADATA_VERSION_MIN: Final = min(METADATA_VERSION_NAMES)
METADATA_VERSION_LATEST: Final = max(METADATA_VERSION_NAMES)

SCRAM_SINCE: Final = 11
NO_EPOCH_BUMP_ON_SHRINK_SINCE: Final = 12
TRANSACTIONS_SINCE: Final = 13
DELEGATION_TOKENS_SINCE: Final = 14
CONTROLLER_REGISTRATION_SINCE: Final = 15
DIRECTORIES_SINCE: Final = 17
ELR_RECORDS_SINCE: Final = 23
CORDONED_DIRECTORIES_SINCE: Final = 30

_RECORD_FORMAT_CHANGES: Final = frozenset({8, 11, 13, 14, 15, 17, 23, 30})
"""The levels that brought new records or fields: going below one could lose what it wrote."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature: the levels we support, and which level a new cluster starts with."""

    name: str
    supported: VersionRange
    starts_with: Mapping[int, int]
    """Level to the lowest metadata.version at which a new cluster gets it."""
    requires: Mapping[int, int]
    """Level to the lowest metadata.version without which it cannot be."""

    def default_level(self, metadata_version: int) -> int:
        """The level of a new cluster at a metadata.version."""
        fitting = [level for level, since in self.starts_with.items() if since <= metadata_version]
        return max(fitting, default=self.supported.lowest)


def _feature(
    name: str, highest: int, starts_with: Mapping[int, int], requires: Mapping[int, int]
) -> Feature:
    return Feature(name, VersionRange(0, highest), starts_with, requires)


FEATURES: Final[Mapping[str, Feature]] = MappingProxyType(
    {
        feature.name: feature
        for feature in (
            Feature(
                METADATA_VERSION,
                VersionRange(METADATA_VERSION_MIN, METADATA_VERSION_LATEST),
                {level: level for level in METADATA_VERSION_NAMES},
                {},
            ),
            _feature(KRAFT_VERSION, 1, {1: 21}, {1: 21}),
            _feature(TRANSACTION_VERSION, 2, {1: 24, 2: 24}, {}),
            _feature(GROUP_VERSION, 1, {1: 22}, {}),
            _feature(ELIGIBLE_LEADER_REPLICAS_VERSION, 1, {1: 26}, {1: ELR_RECORDS_SINCE}),
            _feature(SHARE_VERSION, 1, {1: 28}, {}),
        )
    }
)
"""Every feature by name."""

SUPPORTED_FEATURES: Final[Mapping[str, VersionRange]] = MappingProxyType(
    {name: feature.supported for name, feature in FEATURES.items()}
)
"""What this software can do."""

REGISTERED_FEATURES: Final[Mapping[str, VersionRange]] = MappingProxyType(
    {**SUPPORTED_FEATURES, **dict.fromkeys(UNSERVED_FEATURES, VersionRange(0, 1))}
)
"""What a node registers with: also the levels that it leaves to others. A controller of Apache
Kafka lets no node in that does not name every feature its cluster has."""


def metadata_version_name(level: int) -> str:
    """Write a level as users know it; the number where it has no name."""
    return METADATA_VERSION_NAMES.get(level, str(level))


def parse_metadata_version(text: str) -> int:
    """The level of `4.3-IV0`, or of a release such as `4.3` (its last level)."""
    for level in sorted(METADATA_VERSION_NAMES, reverse=True):
        name = METADATA_VERSION_NAMES[level]
        if text in (name, name.partition("-")[0]):
            return level
    known = f"{METADATA_VERSION_NAMES[METADATA_VERSION_MIN]} to {METADATA_VERSION_NAMES[30]}"
    raise InvalidArgument(f"there is no metadata.version {text!r}; known are {known}")


def default_levels(metadata_version: int = METADATA_VERSION_LATEST) -> dict[str, int]:
    """The levels above 0 of a new cluster, without kraft.version, which raft keeps."""
    if metadata_version not in METADATA_VERSION_NAMES:
        raise InvalidArgument(
            f"there is no metadata.version {metadata_version}; known are "
            f"{METADATA_VERSION_MIN} to {METADATA_VERSION_LATEST}"
        )
    levels = {METADATA_VERSION: metadata_version}
    for feature in FEATURES.values():
        level = feature.default_level(metadata_version)
        if feature.name not in (METADATA_VERSION, KRAFT_VERSION) and level > 0:
            levels[feature.name] = level
    return levels


def loses_metadata(current: int, lower: int) -> bool:
    """Whether going down could drop records that the lower level cannot write."""
    return any(lower < change <= current for change in _RECORD_FORMAT_CHANGES)


def unmet_dependency(name: str, level: int, levels: Mapping[str, int]) -> str | None:
    """Why a level cannot be together with the other levels, or None when it can."""
    for at_level, metadata_version in FEATURES[name].requires.items():
        if level >= at_level and levels.get(METADATA_VERSION, 0) < metadata_version:
            return (
                f"{name}={level} needs {METADATA_VERSION} {metadata_version} "
                f"({metadata_version_name(metadata_version)}) or higher"
            )
    return None
