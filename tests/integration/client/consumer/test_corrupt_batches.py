"""A batch that rotted on the broker's disk: a consumer names it, skips it, or hands it over."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Consumer, TopicPartition
from millstream.clock import SystemClock
from millstream.errors import CorruptBatch
from millstream.records import RecordBatch
from tests.integration.node.harness import Client, running

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

PATIENCE = 20.0


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with a topic of three batches, the second of which has another byte at its end."""
    data = tmp_path_factory.mktemp("node")
    with running(data) as node:
        address = node.until_ready()
        with Client(address) as client:
            assert client.create_topic("rotten") == 0
            for value in (b"first", b"second", b"third"):
                client.produce("rotten", value)
        (log,) = Path(data).rglob("rotten-0/*.log")
        with log.open("r+b") as file:
            head = file.read(200)
            file.seek(RecordBatch(head).size * 2)
            file.write(b"!")
        yield address


def consumer(address: str, **settings: Any) -> Consumer:
    made = Consumer(address, **settings)
    made.assign([TopicPartition("rotten", 0)])
    made.seek_to_beginning()
    return made


def test_the_error_names_the_batch_and_is_not_told_at_every_turn(address: str) -> None:
    with consumer(address) as reader:
        assert [each.value for each in reader.poll(PATIENCE)] == [b"first"]
        with pytest.raises(CorruptBatch, match="rotten-0: the batch at offset 1") as raised:
            reader.poll(PATIENCE)

        clock = SystemClock()
        begun_ms = clock.monotonic_ms()
        with pytest.raises(CorruptBatch):
            reader.poll(0.3)
        assert clock.monotonic_ms() - begun_ms >= 300

        reader.seek(TopicPartition("rotten", 0), raised.value.next_offset)
        assert [each.value for each in reader.poll(PATIENCE)] == [b"third"]


def test_it_is_skipped_if_that_is_wanted(address: str) -> None:
    with consumer(address, on_corrupt_batch="skip") as reader:
        found = [each.value for _ in range(2) for each in reader.poll(PATIENCE)]
    assert found == [b"first", b"third"]


def test_it_can_be_kept_elsewhere(address: str) -> None:
    letters: list[CorruptBatch] = []
    with consumer(address, on_corrupt_batch=letters.append) as reader:
        found = [each.value for _ in range(2) for each in reader.poll(PATIENCE)]
    assert found == [b"first", b"third"]
    assert [(each.topic, each.partition, each.offset, each.next_offset) for each in letters] == [
        ("rotten", 0, 1, 2)
    ]
    assert letters[0].data.endswith(b"!") or b"second" not in letters[0].data
