"""Producer ids, coordinators that are not there yet, and metrics that clients push."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from millstream.coordinator.group.config import GroupConfig
from millstream.coordinator.share.config import ShareCoordinatorConfig
from millstream.coordinator.transaction.config import TransactionConfig
from millstream.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidRecord,
    InvalidRequest,
    InvalidTransactionTimeout,
    NotController,
    TelemetryTooLarge,
    ThrottlingQuotaExceeded,
    UnknownSubscriptionId,
    UnsupportedCompressionType,
)
from millstream.metadata.configs import ResourceType
from millstream.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from millstream.protocol.messages.find_coordinator import FindCoordinatorRequest
from millstream.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
)
from millstream.protocol.messages.init_producer_id import InitProducerIdRequest
from millstream.protocol.messages.push_telemetry import PushTelemetryRequest
from millstream.records import Compression, compress
from millstream.server.config import ServerConfig
from millstream.types import Uuid
from tests.unit.server.fakes import Client
from tests.unit.server.harness import INTERNAL_PARTITIONS, NODE_ID, Broker
from tests.unit.server.requests import alter_request, find_coordinator_request

IDEMPOTENT = InitProducerIdRequest(transactional_id=None)


class TestProducerIds:
    """InitProducerId."""

    def test_every_producer_gets_an_id_of_its_own(self) -> None:
        broker = Broker()

        answers = [broker.ask(IDEMPOTENT) for _ in range(1500)]

        assert len({each.producer_id for each in answers}) == 1500
        assert {(each.error_code, each.producer_epoch) for each in answers} == {(0, 0)}

    def test_the_next_block_is_asked_for_before_the_last_id_is_gone(self) -> None:
        broker = Broker()
        for _ in range(900):
            broker.ask(IDEMPOTENT)

        asked = [r for r, _ in broker.channel.requests if isinstance(r, AllocateProducerIdsRequest)]

        assert len(asked) == 2

    def test_askers_wait_for_a_block(self) -> None:
        broker = Broker()
        broker.channel.is_holding = True
        calls = [broker.call(IDEMPOTENT) for _ in range(3)]
        assert all(call.is_pending for call in calls)

        broker.channel.release()

        assert len({call.response.producer_id for call in calls}) == 3
        assert len(broker.channel.requests) == 1

    def test_without_a_controller_the_asker_tries_again(self) -> None:
        broker = Broker()
        broker.controller.controller.on_not_leader()

        refused = broker.ask(IDEMPOTENT)

        assert refused.error_code == CoordinatorLoadInProgress.code
        assert refused.producer_id == -1
        assert NotController.retriable

    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({"transactional_id": "tx"}, InvalidTransactionTimeout.code),
            (
                {"transactional_id": "tx", "transaction_timeout_ms": 1},
                CoordinatorNotAvailable.code,
            ),
            ({"transactional_id": ""}, InvalidRequest.code),
            ({"transactional_id": None, "producer_id": 5}, InvalidRequest.code),
            ({"transactional_id": None, "producer_epoch": 5}, InvalidRequest.code),
        ],
    )
    def test_what_is_refused(self, fields: dict[str, Any], code: int) -> None:
        assert Broker().ask(InitProducerIdRequest(**fields)).error_code == code


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize(
    ("key_type", "topic"), [(0, "__consumer_offsets"), (1, "__transaction_state")]
)
def test_a_coordinator_is_the_leader_of_the_keys_partition(
    version: int, key_type: int, topic: str
) -> None:
    broker = Broker()
    if version == 0:
        key_type, topic = 0, "__consumer_offsets"

    answer = broker.ask(find_coordinator_request(version, key_type), version)

    found = answer if version < 4 else answer.coordinators[0]
    assert (found.error_code, found.node_id) == (0, NODE_ID)
    assert found.port > 0
    assert broker.metadata.partition_count(topic) == INTERNAL_PARTITIONS
    assert broker.metadata.topic_config(topic)["cleanup.policy"] == "compact"


@pytest.mark.parametrize(
    ("key_type", "topic"), [(1, "__transaction_state"), (2, "__share_group_state")]
)
def test_no_more_replicas_need_to_be_in_sync_than_there_are(key_type: int, topic: str) -> None:
    broker = Broker()
    key = f"g:{Uuid(bytes([1]) * 16)}:0"

    broker.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 6)

    assert broker.metadata.topic_config(topic)["min.insync.replicas"] == "1"


def test_the_coordinators_topics_have_as_many_partitions_as_kafkas_unless_told_otherwise() -> None:
    assert GroupConfig().offsets_topic_num_partitions == 50
    assert TransactionConfig().partition_count == 50
    assert ShareCoordinatorConfig().partition_count == 50


@pytest.mark.parametrize(("version", "key_type"), [(3, 9), (6, 9), (5, 2)])
def test_there_are_no_coordinators_of_other_kinds(version: int, key_type: int) -> None:
    answer = Broker().ask(find_coordinator_request(version, key_type), version)

    found = answer if version < 4 else answer.coordinators[0]
    assert (found.error_code, found.node_id) == (InvalidRequest.code, -1)


def test_a_topic_that_cannot_be_made_is_no_coordinator() -> None:
    broker = Broker(given={"offsets.topic.replication.factor": "3"})

    answer = broker.ask(find_coordinator_request(4))

    assert answer.coordinators[0].error_code == CoordinatorNotAvailable.code
    assert broker.metadata.topic("__consumer_offsets") is None


def test_all_who_ask_meanwhile_get_the_answer() -> None:
    broker = Broker()
    broker.channel.is_holding = True
    calls = [broker.call(find_coordinator_request(4)) for _ in range(3)]
    assert all(call.is_pending for call in calls)

    broker.channel.release()

    assert [call.response.coordinators[0].node_id for call in calls] == [NODE_ID] * 3


class TestTelemetry:
    """GetTelemetrySubscriptions and PushTelemetry."""

    @pytest.fixture
    def broker(self) -> Broker:
        made = Broker(config=ServerConfig(telemetry_max_bytes=1000))
        made.ask(
            alter_request(
                ResourceType.CLIENT_METRICS,
                "m",
                ("metrics", "org.apache.kafka.producer."),
                ("interval.ms", "1000"),
                ("match", "client_id=te.*"),
            )
        )
        return made

    def push(self, broker: Broker, **fields: Any) -> PushTelemetryRequest:
        known = broker.ask(GetTelemetrySubscriptionsRequest())
        given = {
            "client_instance_id": known.client_instance_id,
            "subscription_id": known.subscription_id,
            "metrics": b"metrics",
        }
        return PushTelemetryRequest(**(given | fields))

    def test_a_client_is_told_what_matches_it(self, broker: Broker) -> None:
        matching = broker.ask(GetTelemetrySubscriptionsRequest())
        other = broker.ask(GetTelemetrySubscriptionsRequest(), client_id="another")

        assert matching.client_instance_id != Uuid.ZERO
        assert matching.requested_metrics == ["org.apache.kafka.producer."]
        assert (matching.push_interval_ms, matching.telemetry_max_bytes) == (1000, 1000)
        assert matching.delta_temporality
        assert other.requested_metrics == []
        assert other.push_interval_ms == 300_000

    def test_a_star_is_all_metrics(self, broker: Broker) -> None:
        broker.ask(alter_request(ResourceType.CLIENT_METRICS, "all", ("metrics", "*")))

        assert broker.ask(GetTelemetrySubscriptionsRequest()).requested_metrics == ["*"]

    @pytest.mark.parametrize("codec", list(Compression))
    def test_metrics_arrive_decompressed(self, broker: Broker, codec: Compression) -> None:
        metrics = bytes(compress(codec, b"metrics" * 20))

        answer = broker.ask(
            self.push(broker, metrics=metrics, compression_type=codec), client=Client()
        )

        ((payload, context),) = broker.sink.received
        assert answer.error_code == 0
        assert payload == b"metrics" * 20
        assert (context.client_id, context.peer_host) == ("tests", "10.1.2.3")

    def test_one_push_per_interval(self, broker: Broker) -> None:
        request = self.push(broker)

        first = broker.ask(request)
        early = broker.ask(request)
        broker.pass_time(1000)
        later = broker.ask(request)

        codes = [each.error_code for each in (first, early, later)]
        assert codes == [0, ThrottlingQuotaExceeded.code, 0]

    def test_the_last_push_may_be_early_and_ends_it(self, broker: Broker) -> None:
        request = self.push(broker)
        broker.ask(request)
        request.terminating = True

        last = broker.ask(request)
        after = broker.ask(request)
        again = broker.ask(
            GetTelemetrySubscriptionsRequest(client_instance_id=request.client_instance_id)
        )

        assert last.error_code == 0
        assert after.error_code == InvalidRequest.code
        assert again.error_code == InvalidRequest.code

    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({"client_instance_id": Uuid.ZERO}, InvalidRequest.code),
            ({"subscription_id": 1}, UnknownSubscriptionId.code),
            ({"metrics": bytes(1001)}, TelemetryTooLarge.code),
            ({"compression_type": 9}, UnsupportedCompressionType.code),
            ({"compression_type": 1}, InvalidRecord.code),
            ({"compression_type": 1, "metrics": zlib.compress(b"x")}, InvalidRecord.code),
        ],
    )
    def test_what_is_refused(self, broker: Broker, fields: dict[str, Any], code: int) -> None:
        assert broker.ask(self.push(broker, **fields)).error_code == code

    def test_a_broker_that_has_forgotten_a_client_takes_its_metrics(self, broker: Broker) -> None:
        request = self.push(broker)
        broker.apis._handlers.clear()
        restarted = Broker(config=ServerConfig(telemetry_max_bytes=1000))

        assert restarted.ask(request).error_code == UnknownSubscriptionId.code

    def test_a_receiver_that_fails_is_the_brokers_problem(
        self, broker: Broker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: object) -> None:
            raise RuntimeError

        monkeypatch.setattr(broker.sink, "export", broken)

        assert broker.ask(self.push(broker)).error_code == InvalidRecord.code
