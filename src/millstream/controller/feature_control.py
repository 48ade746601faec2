"""Feature levels: UpdateFeatures, with the rules for going up and down.

kraft.version is raft's: an update of it is checked here and passed on to the log.
"""

from __future__ import annotations

from collections import Counter
from enum import IntEnum
from typing import TYPE_CHECKING

from millstream.controller.decision import Decision
from millstream.errors import InvalidRequest, InvalidUpdateVersion
from millstream.metadata.features import (
    CONTROLLER_REGISTRATION_SINCE,
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    FEATURES,
    KRAFT_VERSION,
    METADATA_VERSION,
    loses_metadata,
    metadata_version_name,
    unmet_dependency,
)
from millstream.protocol.messages.config_records import FeatureLevelRecord
from millstream.protocol.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesResponse,
)
from millstream.protocol.notation import VersionRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from millstream.controller.configuration_control import ConfigurationControl
    from millstream.controller.decision import RequestContext
    from millstream.controller.replication_control import ControllerState
    from millstream.protocol.message import Message
    from millstream.protocol.messages.update_features import (
        FeatureUpdateKey,
        UpdateFeaturesRequest,
    )

_RESULTS_UNTIL = 1
"""The last version whose answer lists every feature."""


class UpgradeType(IntEnum):
    """What the asker allows."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureControl:
    """Decides about feature levels."""

    def __init__(
        self,
        state: ControllerState,
        configuration: ConfigurationControl,
        node_id: int,
        quorum_ids: Callable[[], frozenset[int]],
        upgrade_kraft_version: Callable[[int, bool], None],
    ) -> None:
        """`upgrade_kraft_version` gets the level and whether to validate only."""
        self._state = state
        self._configuration = configuration
        self._node_id = node_id
        self._quorum_ids = quorum_ids
        self._upgrade_kraft_version = upgrade_kraft_version

    def update(
        self, request: UpdateFeaturesRequest, context: RequestContext
    ) -> Decision[UpdateFeaturesResponse]:
        """All updates or none."""
        updates = {each.feature: each for each in request.feature_updates}
        twice = [n for n, c in Counter(u.feature for u in request.feature_updates).items() if c > 1]
        if twice:
            raise InvalidRequest(f"features occur twice: {', '.join(sorted(twice))}")
        levels = dict(self._state.image.features.levels)
        levels.update({name: each.max_version_level for name, each in updates.items()})
        records: list[Message] = []
        for name, asked in updates.items():
            self._check(name, asked, _upgrade_type(asked, context.version), levels)
            if name != KRAFT_VERSION:
                records += self._records(name, asked.max_version_level)
        if KRAFT_VERSION in updates:
            level = updates[KRAFT_VERSION].max_version_level
            self._upgrade_kraft_version(level, request.validate_only)
        response = UpdateFeaturesResponse(error_message=None)
        if context.version <= _RESULTS_UNTIL:
            response.results = [
                UpdatableFeatureResult(feature=name, error_message=None) for name in updates
            ]
        return Decision(response, [] if request.validate_only else records)

    def _records(self, name: str, level: int) -> list[Message]:
        records: list[Message] = [FeatureLevelRecord(name=name, feature_level=level)]
        if name == ELIGIBLE_LEADER_REPLICAS_VERSION and level > 0:
            records += self._configuration.elr_safety_records()
        return records

    def _check(
        self,
        name: str,
        asked: FeatureUpdateKey,
        upgrade_type: UpgradeType | None,
        levels: Mapping[str, int],
    ) -> None:
        level = asked.max_version_level
        problem = self._problem(name, level, upgrade_type, levels)
        if problem is not None:
            raise InvalidUpdateVersion(f"{name} cannot be set to level {level}: {problem}")

    def _problem(
        self,
        name: str,
        level: int,
        upgrade_type: UpgradeType | None,
        levels: Mapping[str, int],
    ) -> str | None:
        if upgrade_type is None:
            return "the kind of upgrade is not known"
        if level < 0:
            return "a level is 0 or more"
        unsupported = next(self._nodes_without(name, level), None)
        if unsupported is not None:
            return unsupported
        current = self._state.image.features.level(name)
        if level < current and upgrade_type is UpgradeType.UPGRADE:
            return f"that is below its level {current}, and a downgrade was not asked for"
        if level > current and upgrade_type is not UpgradeType.UPGRADE:
            return f"that is above its level {current}, and a downgrade was asked for"
        if name == METADATA_VERSION:
            return _metadata_version_problem(level, current)
        return unmet_dependency(name, level, levels)

    def _nodes_without(self, name: str, level: int) -> Iterator[str]:
        """Why not: each node that does not support a level."""
        feature = FEATURES.get(name)
        if feature is None:
            yield "there is no such feature"
            return
        if not _supports(feature.supported, level):
            yield f"this controller supports {feature.supported}"
        image = self._state.image
        for broker_id, broker in sorted(image.cluster.brokers.items()):
            supported = broker.features.get(name, VersionRange(0, 0))
            if not _supports(supported, level):
                yield f"broker {broker_id} supports {supported}"
        if image.metadata_version < CONTROLLER_REGISTRATION_SINCE:
            return
        for controller_id in sorted(self._quorum_ids() - {self._node_id}):
            controller = image.cluster.controllers.get(controller_id)
            if controller is None:
                yield f"controller {controller_id} has not registered and may not support it"
            elif not _supports(controller.features.get(name, VersionRange(0, 0)), level):
                yield f"controller {controller_id} supports {controller.features.get(name)}"


def _metadata_version_problem(level: int, current: int) -> str | None:
    if level >= current or not loses_metadata(current, level):
        return None
    names = f"{metadata_version_name(current)} to {metadata_version_name(level)}"
    return f"going from {names} could lose metadata"


def _supports(supported: VersionRange, level: int) -> bool:
    """Level 0 is "off", which everybody can do, unless the feature cannot be off."""
    return supported.covers(level) or (level == 0 and supported.lowest <= 1)


def _upgrade_type(asked: FeatureUpdateKey, version: int) -> UpgradeType | None:
    if version == 0:
        return UpgradeType.SAFE_DOWNGRADE if asked.allow_downgrade else UpgradeType.UPGRADE
    return UpgradeType(asked.upgrade_type) if asked.upgrade_type in tuple(UpgradeType) else None
