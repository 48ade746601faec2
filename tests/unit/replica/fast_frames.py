"""Requests for the fast path of Produce as frames, and what it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.errors import error_for_code
from millstream.protocol.api import ApiKey
from millstream.protocol.frame import decode_response, encode_request
from millstream.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from millstream.replica.append_service import AppendResult
from millstream.types import Uuid
from tests.unit.storage.batches import batch_bytes

if TYPE_CHECKING:
    from tests.unit.replica.harness import World


def frame_of(
    topic: str | Uuid = "t",
    index: int = 0,
    acks: int = -1,
    records: bytes | None = None,
    timeout_ms: int = 1000,
) -> bytearray:
    """A request by name in the last version that has names, or by id."""
    data = TopicProduceData(
        name=topic if isinstance(topic, str) else "",
        topic_id=topic if isinstance(topic, Uuid) else Uuid.ZERO,
        partition_data=[PartitionProduceData(index=index, records=records or batch_bytes())],
    )
    request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[data])
    return bytearray(encode_request(request, version_of(topic), 7, "tests"))


def version_of(topic: str | Uuid) -> int:
    """In which version a topic is named."""
    return 12 if isinstance(topic, str) else 13


def fast_answers(world: World, *frames: bytearray) -> list[Any]:
    """What the fast path gives for frames of one turn, up to the first that it declines."""
    assert world.manager.fast_path is not None
    return world.manager.fast_path.answer_all(frames)


def result_of(answer: bytes, version: int = 12) -> AppendResult:
    """What an answer says of its only partition."""
    response: Any = decode_response(answer[4:], ApiKey.PRODUCE, version)[1]
    found = response.responses[0].partition_responses[0]
    error = error_for_code(found.error_code) if found.error_code else None
    return AppendResult(error, found.base_offset, found.log_append_time_ms, found.log_start_offset)
