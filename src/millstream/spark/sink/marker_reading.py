"""Reads the marker of an exactly-once write over the connections that its producer has.

An administrator's client would do the same, with connections and a thread of its own for every
task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.client.futures import Waiter
from millstream.client.groups import OffsetAndMetadata
from millstream.client.targets import Coordinator
from millstream.errors import MillstreamError, error_for_code
from millstream.network.client.network_client import VersionedRequest
from millstream.protocol.api import ApiKey
from millstream.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.client.producer.producer import Producer
    from millstream.protocol.message import Message
    from millstream.protocol.messages.offset_fetch import (
        OffsetFetchResponsePartition,
        OffsetFetchResponsePartitions,
    )

_STABLE_FROM: Final = 7
_SEVERAL_GROUPS_FROM: Final = 8
_TOPIC_NAMES_UNTIL: Final = 9


def read_stable_offsets(producer: Producer, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """All that is committed in a group, once no transaction is about to change it."""
    core = producer._core
    wire_group = core.config.names.to_wire(group)
    waiter: Waiter[OffsetFetchResponse] = Waiter(f"reading the marker in group {group}")
    wait_ms = core.config.max_block_ms

    def on_done(answer: Message | MillstreamError, _now_ms: int) -> None:
        if isinstance(answer, MillstreamError):
            waiter.set_error(answer)
            return
        assert isinstance(answer, OffsetFetchResponse)
        code = _code_in(answer)
        if code:
            waiter.set_error(error_for_code(code))
        else:
            waiter.set_result(answer)

    def ask(now_ms: int) -> None:
        core.runtime.router.call(
            _request(wire_group),
            Coordinator("group", wire_group),
            on_done,
            deadline_ms=now_ms + wait_ms,
            now_ms=now_ms,
            error_of=_code_in,
        )

    core.runtime.post(ask)
    # The call ends by itself; the second is for its answer to get here.
    told = _partitions(waiter.result(wait_ms / 1000 + 1))
    return {
        TopicPartition(name, each.partition_index): OffsetAndMetadata(
            each.committed_offset, each.metadata or ""
        )
        for topic, each in told
        if (name := core.config.names.from_wire(topic)) is not None and each.committed_offset >= 0
    }


def _request(wire_group: str) -> VersionedRequest:
    def build(version: int) -> OffsetFetchRequest:
        if version >= _SEVERAL_GROUPS_FROM:
            groups = [OffsetFetchRequestGroup(group_id=wire_group, topics=None)]
            return OffsetFetchRequest(groups=groups, require_stable=True)
        return OffsetFetchRequest(
            group_id=wire_group, topics=None, require_stable=version >= _STABLE_FROM
        )

    return VersionedRequest(ApiKey.OFFSET_FETCH, build, _TOPIC_NAMES_UNTIL)


def _partitions(
    answer: OffsetFetchResponse,
) -> Iterator[tuple[str, OffsetFetchResponsePartition | OffsetFetchResponsePartitions]]:
    for topic in answer.topics:
        yield from ((topic.name, each) for each in topic.partitions)
    for group in answer.groups:
        for named in group.topics:
            yield from ((named.name, each) for each in named.partitions)


def _code_in(answer: Message) -> int:
    """The error of the answer, of the group in it or of a partition; 0 if all is well."""
    assert isinstance(answer, OffsetFetchResponse)
    codes = [answer.error_code, *(group.error_code for group in answer.groups)]
    codes += [each.error_code for _, each in _partitions(answer)]
    return next((code for code in codes if code), 0)
