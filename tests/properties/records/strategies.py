"""Hypothesis strategies for records, batches and damage to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from hypothesis import strategies as st

from millstream.records import Compression
from tests.unit.records.kernels import PLAIN

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

Row: TypeAlias = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
timestamps = st.one_of(st.integers(1_700_000_000_000, 1_700_000_100_000), st.integers(-1, 2**42))
payloads = st.one_of(
    st.none(),
    st.binary(max_size=40),
    st.builds(bytes.__mul__, st.binary(min_size=1, max_size=3), st.integers(60, 9_000)),
)
header_keys = st.binary(max_size=10).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
headers = st.lists(st.tuples(header_keys, payloads), max_size=4).map(tuple)
rows = st.tuples(timestamps, payloads, payloads, st.one_of(st.just(()), headers))
codecs = st.sampled_from(Compression)


@st.composite
def bodies(draw: DrawFn) -> tuple[bytes, int]:
    """An encoded records section and its record count."""
    drawn = draw(st.lists(rows, max_size=6))
    writer = PLAIN.BatchWriter()
    for row in drawn:
        skipped = draw(st.integers(0, 3))
        writer.append(*row, offset_delta=writer.last_offset_delta + 1 + skipped)
    return bytes(writer.body()), writer.record_count


@st.composite
def damaged(draw: DrawFn, intact: bytes) -> bytes:
    """The bytes after a few edits: flips, cuts, insertions and repetitions."""
    data = bytearray(intact)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        size = draw(st.integers(0, 8))
        match draw(st.sampled_from(["flip", "cut", "insert", "repeat", "end"])):
            case "flip" if at < len(data):
                data[at] ^= draw(st.integers(1, 255))
            case "cut":
                del data[at : at + size]
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=8))
            case "repeat":
                data[at:at] = data[at : at + size]
            case "end":
                del data[at:]
            case _:
                pass
    return bytes(data)


def outcome(call: Any, *arguments: Any) -> tuple[Any, ...]:
    """What a call gives, or the error it raises, in a form that two kernels can share."""
    try:
        result = call(*arguments)
    except Exception as error:
        return type(error), str(error)
    if isinstance(result, list):
        return tuple(plain_value(item) for item in result)
    return (result,)


def plain_value(item: Any) -> Any:
    """A record as a tuple; anything else as it is."""
    if hasattr(item, "offset"):
        return item.offset, item.timestamp, item.key, item.value, item.headers
    return item
