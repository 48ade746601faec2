"""What was found out about a frame on another thread changes nothing about its answer."""

from __future__ import annotations

import pytest

from millstream import _accel
from millstream.protocol.frame import encode_request
from millstream.protocol.messages.metadata import MetadataRequest
from tests.unit.server.test_express import VERSIONS, frame_of, new_broker, partition_answer

pytestmark = pytest.mark.skipif(
    not _accel.COMPILED, reason="the compiled kernel is not built (make build)"
)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_frame_that_was_checked_before_is_judged_alike(version: int) -> None:
    broker = new_broker()
    assert broker.apis.express is not None
    good, broken = (frame_of(broker, version=version) for _ in range(2))
    broken[-12] ^= 1
    metadata = bytearray(encode_request(MetadataRequest(topics=[]), 9, 1, "tests"))

    (answer,) = broker.apis.express.answer_all([good, broken], are_checked=True)

    assert partition_answer(answer, version).base_offset == 2
    for declined in (broken, broken[:-20], broken[:14], metadata):
        assert broker.apis.express.answer_all([declined], are_checked=True) == []
    assert broker.partition().log.log_end_offset == 3
