"""CRC-32C, murmur2 and key partitioning give the numbers that every Kafka client gives."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest


def test_crc32c_of_the_check_string(kernel: Any) -> None:
    assert kernel.crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize("size", [0, 1, 3, 4, 7, 8, 15, 16, 17, 33, 100, 2047, 2048, 20_001])
def test_crc32c_does_not_depend_on_where_the_data_is_cut(kernel: Any, size: int) -> None:
    data = bytes(i * 7 & 0xFF for i in range(size))

    for cut in {0, 1, size // 3, size // 2, size}:
        assert kernel.crc32c(data[cut:], kernel.crc32c(data[:cut])) == kernel.crc32c(data)


@pytest.mark.parametrize("size", [2_048, 16_385, 262_144, 300_001])
def test_crc32c_of_long_data_is_that_of_its_pieces(kernel: Any, size: int) -> None:
    data = Random(size).randbytes(size)

    crc = 77
    for start in range(0, size, 1000):
        crc = kernel.crc32c(data[start : start + 1000], crc)

    assert kernel.crc32c(data, 77) == crc


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
        (b"", 0),
    ],
)
def test_crc32c_of_the_vectors_of_rfc_3720(kernel: Any, data: bytes, expected: int) -> None:
    assert kernel.crc32c(data) == expected


def test_crc32c_takes_any_buffer_and_any_seed(kernel: Any) -> None:
    data = b"abcdefghijklmnopqrstuvwxyz"

    expected = kernel.crc32c(data, 5)

    assert kernel.crc32c(bytearray(data), 5) == expected
    assert kernel.crc32c(memoryview(b"__" + data)[2:], 5) == expected
    assert kernel.crc32c(data, 5 + (1 << 32)) == expected


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"abc", 479470107),
        (b"", 275646681),
    ],
)
def test_murmur2_is_javas(kernel: Any, key: bytes, expected: int) -> None:
    assert kernel.murmur2(key) == expected
    assert kernel.murmur2(bytearray(key)) == expected
    assert kernel.murmur2(memoryview(key)) == expected


@pytest.mark.parametrize("partition_count", [1, 3, 50, 2**31 - 1])
def test_a_key_goes_to_the_partition_that_java_gives_it(kernel: Any, partition_count: int) -> None:
    for key in (b"21", b"foobar", b"abc", b""):
        expected = (kernel.murmur2(key) & 0x7FFFFFFF) % partition_count
        assert kernel.partition_for_key(key, partition_count) == expected


@pytest.mark.parametrize("partition_count", [0, -1])
def test_a_key_needs_a_partition(kernel: Any, partition_count: int) -> None:
    with pytest.raises(
        ValueError, match=f"partition count must be at least 1, not {partition_count}"
    ):
        kernel.partition_for_key(b"key", partition_count)
