"""A share session with one broker: its epoch, its partitions, and what is to be acknowledged there.

`ShareCore` has one for each broker that leads something of ours and sends what it builds, one
request after the other. What was acquired in a session is gone with it: a new session is a new
object, and acknowledgements of the old one fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.client.share_consumer.acknowledgements import AcknowledgeType, ranges_of
from millstream.protocol.messages import share_acknowledge, share_fetch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from millstream.client.consumer.membership.reconciliation import TopicIdPartition
    from millstream.types import Uuid

FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = (1 << 31) - 1


class FetchLimits(NamedTuple):
    """How much to ask for."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    is_strict: bool


class NodeSession:
    """One session; it begins with the first fetch and ends with the connection."""

    def __init__(self, node_id: int, group_id: str, member_id: str) -> None:
        self.node_id = node_id
        self._group_id = group_id
        self._member_id = member_id
        self._epoch = 0
        self._known: set[TopicIdPartition] = set()
        self._pending: dict[TopicIdPartition, dict[int, int]] = {}
        self.sent: Mapping[TopicIdPartition, Mapping[int, int]] = {}
        """The acknowledgements in the request that is under way."""
        self.is_asking = False
        self.is_over = False
        """Whether the broker has forgotten it, or will have."""
        self.must_flush = False
        """Whether somebody waits for the acknowledgements."""

    @property
    def is_open(self) -> bool:
        """Whether the broker knows it."""
        return self._epoch > 0 and not self.is_over

    @property
    def has_pending(self) -> bool:
        """Whether there is something to acknowledge."""
        return bool(self._pending)

    def can_ride_along(self, wanted: frozenset[TopicIdPartition]) -> bool:
        """Whether what is to be acknowledged can go with the next fetch."""
        if self.must_flush or not self._pending.keys() <= wanted:
            return False
        return not any(
            AcknowledgeType.RENEW in decisions.values() for decisions in self._pending.values()
        )

    def add(self, partition: TopicIdPartition, decisions: Mapping[int, int]) -> None:
        """Something is to be acknowledged."""
        self._pending.setdefault(partition, {}).update(decisions)

    def fetch_request(
        self, wanted: frozenset[TopicIdPartition], limits: FetchLimits
    ) -> share_fetch.ShareFetchRequest:
        """Ask for records of these partitions, and acknowledge those before."""
        self._begin()
        topics = (wanted - self._known) | self.sent.keys()
        forgotten = self._known - wanted
        self._known = set(wanted)
        return share_fetch.ShareFetchRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=limits.max_wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.max_bytes,
            max_records=limits.max_records,
            batch_size=limits.max_records,
            share_acquire_mode=int(limits.is_strict),
            topics=[
                share_fetch.FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        share_fetch.FetchPartition(
                            partition_index=each.partition,
                            acknowledgement_batches=[
                                share_fetch.AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=types
                                )
                                for first, last, types in ranges_of(self.sent.get(each, {}))
                            ],
                        )
                        for each in partitions
                    ],
                )
                for topic_id, partitions in _by_topic(topics).items()
            ],
            forgotten_topics_data=[
                share_fetch.ForgottenTopic(
                    topic_id=topic_id, partitions=[each.partition for each in partitions]
                )
                for topic_id, partitions in _by_topic(forgotten).items()
            ],
        )

    def acknowledge_request(
        self, *, is_final: bool = False
    ) -> share_acknowledge.ShareAcknowledgeRequest:
        """Acknowledge what there is, and end the session if told to."""
        self._begin()
        self.must_flush = False
        renews = any(AcknowledgeType.RENEW in each.values() for each in self.sent.values())
        return share_acknowledge.ShareAcknowledgeRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=FINAL_EPOCH if is_final else self._epoch,
            is_renew_ack=renews,
            topics=[
                share_acknowledge.AcknowledgeTopic(
                    topic_id=topic_id,
                    partitions=[
                        share_acknowledge.AcknowledgePartition(
                            partition_index=each.partition,
                            acknowledgement_batches=[
                                share_acknowledge.AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=types
                                )
                                for first, last, types in ranges_of(self.sent[each])
                            ],
                        )
                        for each in partitions
                    ],
                )
                for topic_id, partitions in _by_topic(self.sent.keys()).items()
            ],
        )

    def answered(self) -> Mapping[TopicIdPartition, Mapping[int, int]]:
        """The broker has taken a request; what it acknowledged."""
        self._epoch = self._epoch + 1 if self._epoch < _EPOCH_MAX else 1
        return self._end()

    def lost(self) -> Mapping[TopicIdPartition, Mapping[int, int]]:
        """The session is over; what was not acknowledged, sent or not."""
        self.is_over = True
        unsent, self._pending = self._pending, {}
        failed = {each: dict(decisions) for each, decisions in self._end().items()}
        for each, decisions in unsent.items():
            failed.setdefault(each, {}).update(decisions)
        return failed

    def _begin(self) -> None:
        self.is_asking = True
        self.sent, self._pending = self._pending, {}

    def _end(self) -> Mapping[TopicIdPartition, Mapping[int, int]]:
        self.is_asking = False
        sent, self.sent = self.sent, {}
        return sent


def _by_topic(partitions: Iterable[TopicIdPartition]) -> dict[Uuid, list[TopicIdPartition]]:
    found: dict[Uuid, list[TopicIdPartition]] = {}
    for each in sorted(partitions):
        found.setdefault(each.topic_id, []).append(each)
    return found
