"""The state of a connection: the compiled class and the plain one have the same attributes."""

from __future__ import annotations

import pytest

from millstream import _accel
from millstream.network.server.connection_state import PlainConnectionState

pytestmark = pytest.mark.skipif(
    not _accel.COMPILED, reason="the compiled kernel is not built (make build)"
)


def test_both_have_the_same_attributes_with_the_same_values_at_first() -> None:
    from millstream._accel.broker.connection_state import ConnectionState

    names = [name for name in dir(ConnectionState) if not name.startswith("_")]

    assert sorted(PlainConnectionState.__slots__) == names
    plain, compiled = PlainConnectionState(), ConnectionState()
    for name in names:
        assert getattr(plain, name) == getattr(compiled, name), name
        assert type(getattr(plain, name)) is type(getattr(compiled, name)), name


def test_a_buffer_of_its_own_must_be_writable() -> None:
    from millstream._accel.broker.connection_state import ConnectionState

    state = ConnectionState()
    state.own = memoryview(bytearray(10))
    assert state.own is not None
    assert len(state.own) == 10
    with pytest.raises(BufferError):
        state.own = memoryview(bytes(10))
    state.own = None
    assert state.own is None
