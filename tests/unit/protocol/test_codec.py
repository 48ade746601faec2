"""The compiled codec and its plain version: what neither may hide."""

from __future__ import annotations

import pytest

from millstream.protocol import codec
from millstream.protocol.decoding import DecoderCompiler
from millstream.protocol.encoding import EncoderCompiler
from millstream.protocol.layout import layout_of
from millstream.protocol.messages import (
    FetchResponse,
    HeartbeatRequest,
    StreamsGroupHeartbeatRequest,
)
from millstream.protocol.notation import parse_field
from millstream.protocol.source import StructCache
from tests.strategies.messages import message_class, message_names, versions_of


def fail(*_: object) -> None:
    raise ValueError("compiled code has a bug")


def test_a_fault_that_only_compiled_code_sees_is_ours_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoded = HeartbeatRequest().encode(4)
    monkeypatch.setattr(codec, "_encoders", {(HeartbeatRequest, 4): fail})
    monkeypatch.setattr(codec, "_decoders", {(HeartbeatRequest, 4): fail})

    with pytest.raises(AssertionError, match="HeartbeatRequest v4: only compiled code fails"):
        HeartbeatRequest().encode(4)
    with pytest.raises(AssertionError, match="HeartbeatRequest v4: only compiled code fails"):
        HeartbeatRequest.decode(encoded, 4)


def test_the_source_can_be_read() -> None:
    layout = layout_of(FetchResponse, 16)

    assert EncoderCompiler(layout).source().startswith("def encode(o0, parts, marks):")
    assert "memoryview(b)" in DecoderCompiler(layout, from_view=False).source()
    assert "memoryview(b)" not in DecoderCompiler(layout, from_view=True).source()


def test_no_element_of_an_array_is_empty() -> None:
    """A count is checked against the bytes left, which means nothing for elements of 0 bytes."""
    for name in message_names():
        cls = message_class(name)
        for version in versions_of(cls):
            pending = [layout_of(cls, version)]
            while pending:
                layout = pending.pop()
                for bound in (*layout.fields, *layout.tagged):
                    if bound.struct is not None:
                        pending.append(bound.struct)
                        assert not bound.field.is_array or bound.struct.size_min > 0


def test_the_smallest_size_of_a_field_that_may_be_null() -> None:
    layout = layout_of(StreamsGroupHeartbeatRequest, 0)
    topology = next(bound for bound in layout.fields if bound.name == "topology")

    assert topology.size_min == 1
    assert parse_field("topology", "Topology?").is_struct


def test_long_rows_are_not_cached() -> None:
    cache = StructCache("i", "pack")

    assert cache[1](7) == b"\0\0\0\7"
    assert len(cache[1000](*range(1000))) == 4000
    assert list(cache) == [1]
