"""How far a table runs ahead of the brokers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from millstream.client.producer import table_sending
from millstream.client.producer.table_sending import TableSender, TooFarAhead
from tests.unit.client.producer.fakes import TOPIC, Bench

pa: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

ROWS = 1000


def sender_of(bench: Bench, broker_count: int = 1) -> TableSender:
    """A table of about 100 KB, for batches of 4 KB."""
    snapshot = SimpleNamespace(brokers=dict.fromkeys(range(broker_count)))
    core: Any = SimpleNamespace(
        is_plain=True,
        accumulator=bench.accumulator,
        config=SimpleNamespace(partitioner_ignore_keys=False),
        runtime=SimpleNamespace(metadata=SimpleNamespace(snapshot=snapshot)),
    )
    return TableSender(core, TOPIC, pa.table({"value": [b"x" * 90] * ROWS}))


def finish(bench: Bench) -> None:
    """The brokers have all that is full."""
    for batch in bench.take():
        batch.complete(0, -1)
        bench.accumulator.finish(batch)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(table_sending, "BYTES_AHEAD", 20_000)
    return Bench(batch_size=1000, linger_ms=1000, buffer_memory=1_000_000)


def test_a_table_waits_when_enough_of_it_is_under_way(bench: Bench) -> None:
    sender = sender_of(bench)
    waited_for: list[bool] = []
    buffered: list[int] = []
    delivery = None
    while delivery is None:
        try:
            delivery = sender.send()
        except TooFarAhead as ahead:
            waited_for.append(ahead.batch.is_done)
            buffered.append(bench.accumulator.buffered_bytes)
            finish(bench)

    assert 4 <= len(waited_for) <= 6
    assert not any(waited_for)
    assert max(buffered) < 20_000 + 3 * 4000
    assert len(delivery) == ROWS


def test_more_brokers_are_given_more(bench: Bench) -> None:
    assert len(sender_of(bench, broker_count=10).send()) == ROWS


def test_brokers_that_are_too_slow_are_not_waited_for_again(bench: Bench) -> None:
    sender = sender_of(bench)
    with pytest.raises(TooFarAhead) as raised:
        sender.send()

    assert len(sender.send()) == ROWS
    assert not raised.value.batch.is_done
