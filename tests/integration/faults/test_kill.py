"""A broker that is killed: what it promised to real clients is there when it comes back."""

from __future__ import annotations

import signal

import pytest

pytest.importorskip("confluent_kafka", reason="a client used only in tests")

from typing import TYPE_CHECKING

from millstream.clock import SystemClock
from millstream.protocol.messages import InitProducerIdRequest, init_producer_id
from millstream.records.builder import RecordBatchBuilder
from tests.integration.faults.kill import Rounds
from tests.integration.node.harness import Client, running

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(180)]

OUT_OF_ORDER_SEQUENCE_NUMBER = 45


def test_nothing_that_was_promised_is_lost_or_doubled_by_kill_9(tmp_path: Path) -> None:
    report = Rounds(tmp_path, seed=3).run(3)

    assert report.rounds == 3
    assert report.verified >= report.promised > 0
    assert report.topics >= 2


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("durability", ["disk", "page-cache"])
def test_a_producer_is_known_after_the_restart(
    tmp_path: Path, how: signal.Signals, durability: str
) -> None:
    with running(tmp_path) as node, Client(node.until_ready()) as client:
        assert client.create_topic("orders", millstream_durability=durability) == 0
        answer = _init_producer_id(client)
        first, second, third = (
            _batch(answer.producer_id, answer.producer_epoch, sequence) for sequence in (0, 2, 4)
        )
        assert client.produce_bytes("orders", first) == (0, 0)
        assert client.produce_bytes("orders", second) == (0, 2)
        node.finish(how)

    with running(tmp_path) as node, Client(node.until_ready()) as client:
        # What the client repeats because it never saw the answer is recognized.
        assert client.produce_bytes("orders", second) == (0, 2)
        assert client.produce_bytes("orders", first) == (0, 0)
        skipped = _batch(answer.producer_id, answer.producer_epoch, 6)
        assert client.produce_bytes("orders", skipped)[0] == OUT_OF_ORDER_SEQUENCE_NUMBER
        assert client.produce_bytes("orders", third) == (0, 4)
        assert len(client.values("orders")) == 6
        assert _init_producer_id(client).producer_id > answer.producer_id


def _init_producer_id(client: Client) -> init_producer_id.InitProducerIdResponse:
    request = InitProducerIdRequest(transactional_id=None)
    answer = client.ask(request, 4, init_producer_id.InitProducerIdResponse)
    assert answer.error_code == 0
    return answer


def _batch(producer_id: int, producer_epoch: int, sequence: int) -> bytes:
    builder, now_ms = RecordBatchBuilder(), SystemClock().wall_ms()
    builder.extend((now_ms, None, b"%d" % number) for number in (sequence, sequence + 1))
    return builder.build(
        producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=sequence
    )
