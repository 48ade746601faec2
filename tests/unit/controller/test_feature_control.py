"""UpdateFeatures: levels up and down, and who must support them."""

from __future__ import annotations

from typing import Any

from millstream.controller.controls import ControllerSeams
from millstream.metadata.configs import CLUSTER_DEFAULT
from millstream.metadata.features import SUPPORTED_FEATURES
from millstream.protocol.messages import broker_registration as registration
from millstream.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.unit.controller.rig import Rig
from tests.unit.controller.test_cluster_control import controller_request
from tests.unit.controller.test_configuration_control import BROKER, SET, change, code

UPGRADE, SAFE, UNSAFE = 1, 2, 3


def update(rig: Rig, name: str, level: int, kind: int = UPGRADE, **fields: Any) -> int:
    version = fields.pop("version", 2)
    asked = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
    response = rig.ask(UpdateFeaturesRequest(feature_updates=[asked], **fields), version)
    assert bool(response.error_code) == bool(response.error_message)
    error_code: int = response.error_code
    return error_code


def test_a_level_is_raised_and_lowered() -> None:
    rig = Rig([0], metadata_version=21)

    assert update(rig, "metadata.version", 30) == 0
    assert update(rig, "group.version", 1) == 0
    assert rig.image.features.levels == {"metadata.version": 30, "group.version": 1}
    assert update(rig, "group.version", 0, SAFE) == 0
    assert rig.image.features.level("group.version") == 0


def test_a_downgrade_must_be_asked_for_and_an_upgrade_too() -> None:
    rig = Rig()

    assert update(rig, "transaction.version", 1) == 95
    assert update(rig, "transaction.version", 1, SAFE) == 0
    assert update(rig, "transaction.version", 2, SAFE) == 95
    assert update(rig, "transaction.version", 2) == 0
    assert update(rig, "transaction.version", 2) == 0
    assert update(rig, "transaction.version", 1, 9) == 95


def test_the_first_version_knows_only_whether_a_downgrade_is_allowed() -> None:
    rig = Rig()
    asked = FeatureUpdateKey(feature="transaction.version", max_version_level=1)
    request = UpdateFeaturesRequest(feature_updates=[asked])

    refused = rig.ask(request, version=0)
    assert (refused.error_code, refused.results[0].error_code) == (95, 95)
    asked.allow_downgrade = True
    done = rig.ask(request, version=0)
    assert (done.error_code, done.results[0].feature) == (0, "transaction.version")


def test_levels_out_of_range_and_unknown_features_are_refused() -> None:
    rig = Rig()

    assert update(rig, "group.version", -1, SAFE) == 95
    assert update(rig, "group.version", 2) == 95
    assert update(rig, "flying.version", 1) == 95
    assert update(rig, "metadata.version", 31) == 95
    assert update(rig, "metadata.version", 6, UNSAFE) == 95


def test_metadata_version_goes_down_only_where_nothing_is_lost() -> None:
    rig = Rig(metadata_version=29)

    assert update(rig, "metadata.version", 26, SAFE) == 0
    assert update(rig, "metadata.version", 22, SAFE) == 95
    assert update(rig, "metadata.version", 22, UNSAFE) == 95


def test_a_feature_needs_the_metadata_version_it_is_built_on() -> None:
    rig = Rig(metadata_version=22)
    elr = "eligible.leader.replicas.version"

    assert update(rig, elr, 1) == 95
    assert update(rig, "metadata.version", 25) == 0
    assert update(rig, elr, 1) == 0


def test_metadata_version_cannot_go_below_what_a_feature_needs() -> None:
    rig = Rig(metadata_version=25, features={"eligible.leader.replicas.version": 1})

    assert update(rig, "metadata.version", 24, SAFE) == 0
    assert update(rig, "metadata.version", 22, SAFE) == 95


def test_turning_elr_on_pins_the_minimum_of_in_sync_replicas() -> None:
    rig = Rig([0], features={"eligible.leader.replicas.version": 0})
    assert code(rig, change(BROKER, "0", ("min.insync.replicas", SET, "2"))) == 0

    assert update(rig, "eligible.leader.replicas.version", 1) == 0

    assert rig.image.configs.of(*CLUSTER_DEFAULT) == {"min.insync.replicas": "1"}
    assert rig.image.configs.of(BROKER, "0") == {}


def test_every_broker_must_support_a_level() -> None:
    rig = Rig(metadata_version=29)
    features = [
        registration.Feature(
            name=name,
            min_supported_version=supported.lowest,
            max_supported_version=29 if name == "metadata.version" else supported.highest,
        )
        for name, supported in SUPPORTED_FEATURES.items()
    ]
    rig.register(1, features=features)

    assert update(rig, "metadata.version", 30) == 95


def test_every_controller_must_be_known_to_support_a_level() -> None:
    rig = Rig(metadata_version=29, seams=ControllerSeams(quorum_ids=lambda: frozenset({100, 3000})))
    assert update(rig, "metadata.version", 30) == 95
    rig.ask(controller_request())
    assert update(rig, "metadata.version", 30) == 0


def test_a_controller_that_lacks_a_level_keeps_it_from_being_set() -> None:
    rig = Rig(metadata_version=29, seams=ControllerSeams(quorum_ids=lambda: frozenset({100, 3000})))
    request = controller_request()
    for feature in request.features:
        if feature.name == "metadata.version":
            feature.max_supported_version = 29
    rig.ask(request)

    assert update(rig, "metadata.version", 30) == 95


def test_before_controllers_register_nobody_can_ask_them() -> None:
    rig = Rig(metadata_version=14, seams=ControllerSeams(quorum_ids=lambda: frozenset({100, 3000})))

    assert update(rig, "metadata.version", 15) == 0
    assert update(rig, "metadata.version", 16) == 95


def test_validating_only_changes_nothing() -> None:
    rig = Rig(metadata_version=29)

    assert update(rig, "metadata.version", 30, validate_only=True) == 0
    assert update(rig, "metadata.version", 31, validate_only=True) == 95
    assert rig.image.metadata_version == 29


def test_all_updates_are_made_or_none() -> None:
    rig = Rig(metadata_version=29)
    good = FeatureUpdateKey(feature="metadata.version", max_version_level=30)
    bad = FeatureUpdateKey(feature="group.version", max_version_level=7)

    assert rig.ask(UpdateFeaturesRequest(feature_updates=[good, bad])).error_code == 95
    assert rig.ask(UpdateFeaturesRequest(feature_updates=[good, good])).error_code == 42
    assert rig.image.metadata_version == 29


def test_kraft_version_is_passed_on_to_raft() -> None:
    rig = Rig()

    assert update(rig, "kraft.version", 1, validate_only=True) == 0
    assert rig.log.kraft_version == 0
    assert update(rig, "kraft.version", 1) == 0
    assert rig.log.kraft_version == 1
    assert rig.image.features.level("kraft.version") == 0


def test_kraft_version_is_raised_together_with_others() -> None:
    """`kafka-features upgrade --release-version` asks for all of a release at once."""
    rig = Rig(metadata_version=29)
    both = [
        FeatureUpdateKey(feature="kraft.version", max_version_level=1),
        FeatureUpdateKey(feature="metadata.version", max_version_level=30),
    ]

    assert rig.ask(UpdateFeaturesRequest(feature_updates=both)).error_code == 0

    assert (rig.log.kraft_version, rig.image.metadata_version) == (1, 30)
