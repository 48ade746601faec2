"""Garbage ends in a DecodeError or in a message, and both codecs say which."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import DecodeError
from millstream.protocol.layout import layout_of
from tests.fuzz.frames import NAMES, check_bytes, fill, run_case
from tests.strategies.messages import message_class, versions_of

if TYPE_CHECKING:
    import random


@given(seed=st.integers(0, 2**32 - 1))
def test_damaged_messages_are_read_or_refused_by_both_codecs(seed: int) -> None:
    run_case(seed)


@given(name=st.sampled_from(NAMES), data=st.binary(max_size=80))
def test_random_bytes_are_read_or_refused_by_both_codecs(name: str, data: bytes) -> None:
    cls = message_class(name)
    for version in versions_of(cls):
        check_bytes(cls, version, data)


@given(name=st.sampled_from(NAMES), chance=st.randoms(use_true_random=False))
def test_every_truncation_is_refused(name: str, chance: random.Random) -> None:
    cls = message_class(name)
    version = cls.VERSIONS.highest
    encoded = fill(layout_of(cls, version), chance).encode(version)
    for length in range(0, len(encoded), max(1, len(encoded) // 50)):
        with pytest.raises(DecodeError):
            cls.decode(encoded[:length], version)
