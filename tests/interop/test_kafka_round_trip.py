"""One log directory, used by Apache Kafka and by us in turn; nothing is lost on the way.

Kafka writes and stops in order; we open it, append, compact and close; Kafka goes on and is killed;
we recover it, append and close; Kafka serves everything. The journey is made once, the tests look
at its stations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from millstream.clock import SystemClock
from millstream.records import Compression, ControlType
from millstream.storage.log.config import LogConfig
from tests.interop.java_client import require_broker_jars
from tests.interop.kafka_broker import KafkaBroker, dump_segments
from tests.interop.kafka_topics import (
    SEGMENT_BYTES,
    TOPICS,
    consume_everything,
    create_topics,
    produce_everything,
)
from tests.interop.log_keeper import LogKeeper, Row, Writer, committed_rows
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(240)]

CLEANING_SECONDS_MAX = 30
OUR_PRODUCER_ID = 5000
CONFIGS = {
    topic: LogConfig(
        internal_segment_bytes=SEGMENT_BYTES,
        cleanup_policy=("compact",) if topic == "compacted" else ("delete",),
        min_cleanable_dirty_ratio=0.01,
        delete_retention_ms=500,
    )
    for topic in TOPICS
}


class Visit(NamedTuple):
    """What we saw when we had the directory, and what we left."""

    found: dict[str, list[Row]]
    left: dict[str, list[Row]]
    was_clean: bool
    passes: int


class Journey(NamedTuple):
    """What each side saw at each station."""

    first_written: dict[str, list[Row]]
    first_visit: Visit
    first_served: dict[str, list[Row]]
    second_written: dict[str, list[Row]]
    second_visit: Visit
    second_served: dict[str, list[Row]]
    kafka_log: str
    dump: str


@pytest.fixture(scope="module")
def journey(tmp_path_factory: pytest.TempPathFactory) -> Journey:
    """The whole way; about a minute."""
    jars = require_broker_jars(tmp_path_factory.mktemp("maven"))
    scratch = tmp_path_factory.mktemp("kafka")
    broker = KafkaBroker(jars, scratch / "data", scratch)
    broker.format()
    try:
        broker.start()
        create_topics(broker)
        produce_everything(broker, "first")
        wait_for_cleaner(broker)
        first_written = consume_everything(broker)
        broker.stop()
        first_visit = visit(broker.data)
        broker.start()
        first_served = consume_everything(broker)
        produce_everything(broker, "second")
        second_written = consume_everything(broker)
        broker.kill()
        second_visit = visit(broker.data)
        broker.start()
        second_served = consume_everything(broker)
        broker.stop()
    finally:
        broker.kill()
    logs = sorted(path for topic in TOPICS for path in (broker.data / f"{topic}-0").glob("*.log"))
    return Journey(
        first_written,
        first_visit,
        first_served,
        second_written,
        second_visit,
        second_served,
        broker.log,
        dump_segments(jars, logs, "--deep-iteration"),
    )


def wait_for_cleaner(broker: KafkaBroker) -> None:
    """Until Kafka has compacted something."""
    checkpoint = broker.data / "cleaner-offset-checkpoint"
    until(
        lambda: checkpoint.exists() and "compacted 0" in checkpoint.read_text(),
        lambda: f"Kafka's cleaner did nothing: {broker.log[-2000:]}",
        limit_seconds=CLEANING_SECONDS_MAX,
    )


def visit(directory: Path) -> Visit:
    """Open the directory, look at everything, append to everything, and close it."""
    was_clean = (directory / ".kafka_cleanshutdown").exists()
    keeper = LogKeeper(directory, CONFIGS, SystemClock().wall_ms())
    found = {topic: committed_rows(keeper.log(topic)) for topic in TOPICS}
    for topic in TOPICS:
        writer = Writer(keeper.log(topic), keeper.clock)
        for number in range(60):
            codec = list(Compression)[number % 5]
            writer.append([(b"k%d" % (number % 9), b"by us %d" % number * 5)] * 2, codec)
    append_transactions(Writer(keeper.log("transactions"), keeper.clock))
    keeper.clean()
    left = {topic: committed_rows(keeper.log(topic)) for topic in TOPICS}
    keeper.stop()
    return Visit(found, left, was_clean, len(keeper.cleaned))


def append_transactions(writer: Writer) -> None:
    """Some that commit and some that abort."""
    for number in range(8):
        rows: list[tuple[bytes | None, bytes | None]] = [(b"t%d" % number, b"ours" * 9)]
        writer.append(rows, producer_id=OUR_PRODUCER_ID, is_transactional=True)
        writer.end(OUR_PRODUCER_ID, ControlType.ABORT if number % 2 else ControlType.COMMIT)


@pytest.mark.parametrize("topic", TOPICS)
def test_what_kafka_wrote_is_here(journey: Journey, topic: str) -> None:
    assert journey.first_visit.was_clean
    assert journey.first_visit.found[topic] == journey.first_written[topic]
    assert len(journey.first_written[topic]) > 5


@pytest.mark.parametrize("topic", TOPICS)
def test_kafka_serves_what_we_left(journey: Journey, topic: str) -> None:
    assert journey.first_served[topic] == journey.first_visit.left[topic]
    assert any(row.value and row.value.startswith(b"by us") for row in journey.first_served[topic])


@pytest.mark.parametrize("topic", TOPICS)
def test_what_a_killed_kafka_wrote_is_recovered(journey: Journey, topic: str) -> None:
    assert not journey.second_visit.was_clean
    assert journey.second_visit.found[topic] == journey.second_written[topic]


@pytest.mark.parametrize("topic", TOPICS)
def test_kafka_serves_what_we_recovered_and_added(journey: Journey, topic: str) -> None:
    assert journey.second_served[topic] == journey.second_visit.left[topic]


def test_both_have_compacted_the_log(journey: Journey) -> None:
    assert journey.first_visit.passes >= 1
    assert journey.second_visit.passes >= 1
    keys = [row.key for row in journey.second_served["compacted"]]
    assert len(keys) < 200


def test_kafka_has_nothing_to_say_about_our_files(journey: Journey) -> None:
    about_logs = [line for line in journey.kafka_log.splitlines() if "storage" in line.lower()]
    assert about_logs == []
    assert "corrupt" not in journey.kafka_log.lower()
    assert " ERROR " not in journey.kafka_log
    assert "isvalid: false" not in journey.dump
    assert "mismatch" not in journey.dump.lower()
