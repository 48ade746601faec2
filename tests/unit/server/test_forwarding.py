"""C32: a broker offers no more of what it passes on than the active controller takes."""

from __future__ import annotations

from millstream.protocol.api import ApiKey
from millstream.protocol.notation import VersionRange
from millstream.server.forwarding import limited_by_controller

OWN = {
    ApiKey.FETCH: VersionRange(4, 18),
    ApiKey.CREATE_TOPICS: VersionRange(2, 7),
    ApiKey.DELETE_TOPICS: VersionRange(1, 6),
    ApiKey.UPDATE_FEATURES: VersionRange(0, 2),
}


def test_a_controller_that_is_not_known_yet_limits_nothing() -> None:
    assert limited_by_controller(OWN, {}) == OWN


def test_what_is_passed_on_is_offered_as_far_as_the_controller_takes_it() -> None:
    theirs = {
        int(ApiKey.CREATE_TOPICS): VersionRange(3, 9),
        int(ApiKey.DELETE_TOPICS): VersionRange(7, 8),
    }

    assert limited_by_controller(OWN, theirs) == {
        ApiKey.FETCH: VersionRange(4, 18),
        ApiKey.CREATE_TOPICS: VersionRange(3, 7),
    }
