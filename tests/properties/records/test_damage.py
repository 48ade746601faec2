"""Damaged bytes: only the documented errors, and the same from both kernels."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from millstream.errors import CorruptMessage, UnsupportedCompressionType
from millstream.records import Compression, compress, decompress
from tests.fuzz.batches import check_body, check_buffer
from tests.properties.records.strategies import bodies, codecs, damaged, int32, int64
from tests.unit.records.test_decoding import BATCH_A
from tests.unit.records.test_legacy import message, wrapper


@given(data=st.data(), body=bodies(), base_offset=int64, base_timestamp=int64)
def test_damaged_records_give_the_same_on_both_kernels(
    data: st.DataObject, body: tuple[bytes, int], base_offset: int, base_timestamp: int
) -> None:
    intact, count = body
    claimed = data.draw(st.one_of(st.just(count), int32))

    check_body(data.draw(damaged(intact)), claimed, base_offset, base_timestamp)


@given(body=st.binary(max_size=60), count=st.integers(-1, 5))
def test_noise_gives_the_same_on_both_kernels(body: bytes, count: int) -> None:
    check_body(body, count, 0, 0)


@given(data=st.data())
def test_damaged_buffers_end_in_documented_errors(data: st.DataObject) -> None:
    inner = message(1, offset=0, value=b"a") + message(1, offset=1, value=b"b")
    old = [message(0, value=b"x"), wrapper(1, Compression.GZIP, inner, offset=5)]
    intact = b"".join(data.draw(st.lists(st.sampled_from([BATCH_A, *old]), min_size=1, max_size=3)))

    check_buffer(data.draw(damaged(intact)))


@given(data=st.data(), codec=codecs, original=st.binary(min_size=1, max_size=500))
def test_damaged_compressed_data_ends_in_documented_errors(
    data: st.DataObject, codec: Compression, original: bytes
) -> None:
    compressed = bytes(compress(codec, original * 20))
    mutated = data.draw(damaged(compressed))
    assume(mutated != compressed)

    try:
        result = decompress(codec, mutated, 100_000)
    except (CorruptMessage, UnsupportedCompressionType):
        return
    assert len(result) <= 100_000
