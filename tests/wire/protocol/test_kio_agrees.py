"""Our bytes are kio's bytes, and kio reads our values, wherever kio has the message version."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.strategies.messages import message_class, message_names, messages, versions_of
from tests.wire.protocol import kio_peer

if TYPE_CHECKING:
    from collections.abc import Callable

ALL_NAMES = sorted({name for name, _ in kio_peer.kio_classes()})

# kio 0.6.5 knows Kafka 4.2: everything but the newest versions and the records of logs.
COMPARED_MIN = 600


def test_kio_has_enough_messages_to_be_a_witness(
    record_property: Callable[[str, object], None],
) -> None:
    known = set(message_names())
    compared = [
        (name, version)
        for name, version in kio_peer.kio_classes()
        if name in known and version in versions_of(message_class(name))
    ]

    record_property("message versions compared with kio", len(compared))
    assert len(compared) >= COMPARED_MIN
    assert len(compared) == len(kio_peer.kio_classes()), "kio has versions that we lack"


@cache
def _strategy(name: str, version: int) -> st.SearchStrategy[Any]:
    return messages(
        message_class(name),
        version,
        overrides=kio_peer.overrides(),
        unknown_tags=st.just(()),
    )


@pytest.mark.parametrize("name", ALL_NAMES)
@settings(
    max_examples=5,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_our_bytes_are_kios_bytes(name: str, data: st.DataObject) -> None:
    cls = message_class(name)
    for version in versions_of(cls):
        peer = kio_peer.kio_classes().get((name, version))
        if peer is None:
            continue
        message = data.draw(_strategy(name, version))

        encoded = message.encode(version)

        theirs, size = kio_peer.read(peer, encoded)
        assert size == len(encoded)
        assert kio_peer.equals(message, theirs), theirs
        assert kio_peer.write(theirs) == encoded
