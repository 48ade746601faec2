"""The values that everything shares."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis.strategies import binary

from millstream.types import OffsetAndEpoch, TopicPartition, Uuid


@given(binary(min_size=16, max_size=16))
def test_a_uuid_is_read_back_from_its_text(raw: bytes) -> None:
    uuid = Uuid(raw)

    assert Uuid.parse(str(uuid)) == uuid
    assert len(str(uuid)) == 22


def test_reserved_uuids_have_kafkas_text() -> None:
    assert str(Uuid.ZERO) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert str(Uuid.METADATA_TOPIC) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert repr(Uuid.ZERO) == "Uuid('AAAAAAAAAAAAAAAAAAAAAA')"


@pytest.mark.parametrize(
    "text", ["", "AAAA", "A" * 21, "A" * 23, "ä" * 22, "+" * 22, "A" * 21 + "="]
)
def test_text_that_is_no_uuid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a Uuid"):
        Uuid.parse(text)


def test_a_uuid_has_sixteen_bytes() -> None:
    with pytest.raises(ValueError, match="16 bytes, not 3"):
        Uuid(b"abc")


def test_random_uuids_are_neither_reserved_nor_look_like_an_option() -> None:
    class Scripted(Random):
        def __init__(self, draws: list[bytes]) -> None:
            super().__init__()
            self.draws = draws

        def randbytes(self, n: int) -> bytes:
            return self.draws.pop(0)

    reserved, with_dash, usable = bytes(15) + b"\x63", b"\xfb\xef\xbe" * 5 + b"\xfb", b"\x11" * 16

    assert "-" in str(Uuid(with_dash))
    assert Uuid.random(Scripted([reserved, with_dash, usable])) == usable


def test_a_later_epoch_wins_over_a_larger_offset() -> None:
    assert OffsetAndEpoch(epoch=2, offset=5) > OffsetAndEpoch(epoch=1, offset=900)


def test_a_partition_is_shown_as_its_directory_is_named() -> None:
    assert str(TopicPartition("orders.eu", 3)) == "orders.eu-3"
