"""Share sessions: epochs, turns, connections and their number."""

from __future__ import annotations

import pytest

from millstream.coordinator.share.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    SessionKey,
    ShareSessionCache,
)
from millstream.errors import (
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
)
from millstream.types import Uuid

ANN, BOB = SessionKey("g", "ann"), SessionKey("g", "bob")
TOPIC = Uuid.ZERO


def test_every_request_is_one_epoch_further() -> None:
    cache = ShareSessionCache(10)
    opened = cache.open(ANN, INITIAL_EPOCH, "connection")

    assert cache.open(ANN, 1, "connection") is opened
    assert cache.open(ANN, 2, "connection") is opened
    with pytest.raises(InvalidShareSessionEpoch):
        cache.open(ANN, 2, "connection")
    assert cache.open(ANN, FINAL_EPOCH, "connection") is opened


def test_epochs_begin_again_after_the_highest() -> None:
    cache = ShareSessionCache(10)
    session = cache.open(ANN, INITIAL_EPOCH, "connection")
    session.epoch = (1 << 31) - 1

    cache.open(ANN, (1 << 31) - 1, "connection")

    assert session.epoch == 1


def test_who_begins_again_has_a_new_session() -> None:
    cache = ShareSessionCache(1)
    first = cache.open(ANN, INITIAL_EPOCH, "old")

    second = cache.open(ANN, INITIAL_EPOCH, "new")

    assert second is not first
    assert cache.of_connection("old") == []
    assert cache.of_connection("new") == [ANN]


def test_there_are_only_so_many_sessions() -> None:
    cache = ShareSessionCache(1)
    cache.open(ANN, INITIAL_EPOCH, "connection")

    with pytest.raises(ShareSessionLimitReached):
        cache.open(BOB, INITIAL_EPOCH, "connection")
    cache.close(ANN)
    assert cache.close(ANN) is None
    cache.open(BOB, INITIAL_EPOCH, "connection")
    assert len(cache) == 1


def test_a_session_that_is_closed_is_not_found() -> None:
    cache = ShareSessionCache(10)
    cache.open(ANN, INITIAL_EPOCH, "connection")
    assert cache.has_group("g")
    cache.close(ANN)

    with pytest.raises(ShareSessionNotFound):
        cache.open(ANN, 1, "connection")
    assert not cache.has_group("g")


def test_every_partition_is_first_once() -> None:
    cache = ShareSessionCache(10)
    session = cache.open(ANN, INITIAL_EPOCH, "connection")
    assert session.in_turn() == []
    session.update([(TOPIC, 0), (TOPIC, 1), (TOPIC, 2)], [])
    firsts = []
    for epoch in range(1, 4):
        cache.open(ANN, epoch, "connection")
        firsts.append(session.in_turn()[0][1])

    assert sorted(firsts) == [0, 1, 2]
    session.update([], [(TOPIC, 0), (TOPIC, 7)])
    assert sorted(session.partitions) == [(TOPIC, 1), (TOPIC, 2)]
