"""However a stream is cut into reads, the same frames come out."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.frame import SMALL_PIECE_BYTES, FrameDecoder

BODIES = st.lists(
    st.binary(min_size=1, max_size=30) | st.just(b"long" * SMALL_PIECE_BYTES), max_size=5
)


@given(bodies=BODIES, data=st.data())
def test_frames_do_not_depend_on_how_they_were_read(
    bodies: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(struct.pack(">i", len(body)) + body for body in bodies)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    decoder = FrameDecoder()

    frames: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        frames += decoder.feed(memoryview(stream)[start:end])

    assert frames == bodies
    assert decoder.held_bytes == 0
