"""Conversations as clients lead them: a request needs what the answer before it said.

They bring groups and transactions into every state that an answer spells out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.protocol.api import ApiKey
from millstream.protocol.messages import (
    ConsumerProtocolSubscription,
    add_partitions_to_txn,
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_configs,
    describe_groups,
    describe_transactions,
    end_txn,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_transactions,
    offset_commit,
    offset_delete,
    share_group_describe,
    share_group_heartbeat,
    sync_group,
)
from millstream.protocol.records_framing import encode_subscription
from tests.differential.answers import plain
from tests.differential.cluster import TOPIC, UNREAD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.protocol.message import Message
    from tests.differential.answers import Answer
    from tests.differential.cluster import Connection

_APIS: Final = {api.request: api for api in ApiKey}
CLASSIC, CONSUMER, SHARE, PAYER = "classic-life", "consumer-life", "share-life", "payer"
JOIN, LEAVE = 0, -1
OWN: Final = "millstream."
_SUBSCRIPTION: Final = encode_subscription(ConsumerProtocolSubscription(topics=[TOPIC]), 0)
SHORTENED: Final = b"\0\1" + _SUBSCRIPTION[2:]
"""A subscription as kafkajs writes it: version 1 without its last field."""


class Conversation:
    """Asks, and writes down what was answered."""

    def __init__(self, name: str, connection: Connection) -> None:
        self._name = name
        self._connection = connection
        self.answers: dict[str, Answer] = {}

    def ask(self, request: Message, version: int) -> Any:
        """The answer to one more request."""
        api = _APIS[type(request)]
        answer = self._connection.ask(api, request, version)
        step = f"{self._name} {len(self.answers):02} {api.api_name} v{version}"
        self.answers[step] = plain(answer)
        return answer

    def list_group(self, group: str) -> None:
        """How ListGroups spells a group; of the others nothing is written down."""
        answer = self.ask(list_groups.ListGroupsRequest(), 5)
        step = next(reversed(self.answers))
        mine = [each for each in answer.groups if each.group_id == group]
        self.answers[step] = plain(list_groups.ListGroupsResponse(groups=mine))


def all_lives(connection: Connection) -> Iterator[tuple[str, Answer]]:
    """Every step of every conversation, with its answer."""
    lives: dict[str, Callable[[Conversation], None]] = {
        "classic group": _classic_group,
        "consumer group": _consumer_group,
        "share group": _share_group,
        "transaction": _transaction,
        "settings": _settings,
    }
    for name, live in lives.items():
        conversation = Conversation(name, connection)
        live(conversation)
        yield from conversation.answers.items()


def _classic_group(said: Conversation) -> None:
    said.list_group(CLASSIC)
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=SHORTENED)
    join = join_group.JoinGroupRequest(
        group_id=CLASSIC,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    member_id = join.member_id = said.ask(join, 9).member_id
    said.ask(join, 9)
    said.list_group(CLASSIC)
    assignment = sync_group.SyncGroupRequestAssignment(member_id=member_id, assignment=b"all")
    sync = sync_group.SyncGroupRequest(
        group_id=CLASSIC,
        generation_id=1,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[assignment],
    )
    said.ask(sync, 5)
    said.list_group(CLASSIC)
    for version in (0, 4, 6):
        said.ask(describe_groups.DescribeGroupsRequest(groups=[CLASSIC]), version)
    beat = heartbeat.HeartbeatRequest(group_id=CLASSIC, generation_id=1, member_id=member_id)
    said.ask(beat, 4)
    for topic in (TOPIC, UNREAD):
        partition = offset_commit.OffsetCommitRequestPartition(committed_offset=1)
        committed = offset_commit.OffsetCommitRequestTopic(name=topic, partitions=[partition])
        said.ask(
            offset_commit.OffsetCommitRequest(
                group_id=CLASSIC,
                generation_id_or_member_epoch=1,
                member_id=member_id,
                topics=[committed],
            ),
            9,
        )
        deleted = offset_delete.OffsetDeleteRequestTopic(
            name=topic, partitions=[offset_delete.OffsetDeleteRequestPartition()]
        )
        said.ask(offset_delete.OffsetDeleteRequest(group_id=CLASSIC, topics=[deleted]), 0)
    leaving = leave_group.MemberIdentity(member_id=member_id)
    said.ask(leave_group.LeaveGroupRequest(group_id=CLASSIC, members=[leaving]), 5)
    said.list_group(CLASSIC)
    said.ask(delete_groups.DeleteGroupsRequest(groups_names=[CLASSIC]), 2)
    said.list_group(CLASSIC)


def _consumer_group(said: Conversation) -> None:
    beat = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id=CONSUMER,
        member_id="member",
        member_epoch=JOIN,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    said.ask(beat, 1)
    said.list_group(CONSUMER)
    describe = consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=[CONSUMER])
    said.ask(describe, 1)
    said.ask(describe_groups.DescribeGroupsRequest(groups=[CONSUMER]), 6)
    beat.member_epoch = LEAVE
    said.ask(beat, 1)
    said.list_group(CONSUMER)
    said.ask(describe, 1)


def _share_group(said: Conversation) -> None:
    beat = share_group_heartbeat.ShareGroupHeartbeatRequest(
        group_id=SHARE, member_id="member", member_epoch=JOIN, subscribed_topic_names=["nowhere"]
    )
    said.ask(beat, 1)
    said.list_group(SHARE)
    describe = share_group_describe.ShareGroupDescribeRequest(group_ids=[SHARE])
    said.ask(describe, 1)
    said.ask(describe_groups.DescribeGroupsRequest(groups=[SHARE]), 6)
    beat.member_epoch = LEAVE
    said.ask(beat, 1)
    said.list_group(SHARE)


def _transaction(said: Conversation) -> None:
    init = init_producer_id.InitProducerIdRequest(
        transactional_id=PAYER, transaction_timeout_ms=60_000
    )
    producer = said.ask(init, 4)
    describe = describe_transactions.DescribeTransactionsRequest(transactional_ids=[PAYER])
    said.ask(describe, 0)
    topic = add_partitions_to_txn.AddPartitionsToTxnTopic(name=TOPIC, partitions=[1])
    said.ask(
        add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=PAYER,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[topic],
        ),
        3,
    )
    for state in ("Ongoing", "ongoing", "Empty"):
        listed = said.ask(list_transactions.ListTransactionsRequest(state_filters=[state]), 1)
        step = next(reversed(said.answers))
        mine = [each for each in listed.transaction_states if each.transactional_id == PAYER]
        listed.transaction_states = mine
        said.answers[step] = plain(listed)
    said.ask(
        end_txn.EndTxnRequest(
            transactional_id=PAYER,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=True,
        ),
        3,
    )


def _settings(said: Conversation) -> None:
    """A topic's settings, but for our own: names, values, kinds and where they come from."""
    for version in (1, 4):
        resource = describe_configs.DescribeConfigsResource(
            resource_type=2, resource_name=TOPIC, configuration_keys=None
        )
        request = describe_configs.DescribeConfigsRequest(
            resources=[resource], include_synonyms=False
        )
        answer = said.ask(request, version)
        step = next(reversed(said.answers))
        (result,) = answer.results
        result.configs = [each for each in result.configs if not each.name.startswith(OWN)]
        said.answers[step] = plain(answer)
