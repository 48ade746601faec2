"""The compiled fields of fetch sessions and their plain version are the same to Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream import _accel
from millstream.replica.fetch_state import (
    PLAIN,
    FetchPartitionState,
    FetchSessionState,
    SessionWatcher,
)

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(
    not _accel.COMPILED, reason="the compiled kernel is not built (make build)"
)

COMPILED = (SessionWatcher, FetchSessionState, FetchPartitionState)
MAKERS: list[Callable[[Any], Any]] = [
    lambda kinds: kinds[0](),
    lambda kinds: kinds[1](7, 1, is_follower=True, uses_topic_ids=False, now_ms=55),
    lambda kinds: kinds[2]("t", 3, 4, 5),
    lambda kinds: kinds[2]("t", 3, 4, 5, 6, 7, 8),
]


def fields_of(state: Any) -> dict[str, Any]:
    """Everything that it has a name for."""
    names = [name for name in dir(state) if not name.startswith("_")]
    return {name: getattr(state, name) for name in names}


@pytest.mark.parametrize("make", MAKERS)
def test_both_begin_alike(make: Callable[[Any], Any]) -> None:
    assert fields_of(make(COMPILED)) == fields_of(make(PLAIN))


@pytest.mark.parametrize("make", MAKERS[1:])
def test_both_take_what_the_rules_set(make: Callable[[Any], Any]) -> None:
    compiled, plain = make(COMPILED), make(PLAIN)
    constant = {"changed", "created_ms", "id", "index", "is_follower", "partitions", "topic"}
    constant |= {"partition", "uses_topic_ids", "watcher"}
    for name, value in fields_of(plain).items():
        if name not in constant:
            changed = not value if isinstance(value, bool) else 99
            setattr(compiled, name, changed)
            setattr(plain, name, changed)

    assert fields_of(compiled) == fields_of(plain)


def test_a_field_that_was_not_given_has_a_value() -> None:
    state: Any = FetchPartitionState.__new__(FetchPartitionState)

    assert (state.topic, state.fetch_offset, state.partition, state.watcher) == (
        None,
        0,
        None,
        None,
    )
