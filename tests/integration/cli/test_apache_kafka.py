"""Our commands against Apache Kafka: its broker, its transactions and its files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from millstream.cli.faults import ExitCode
from tests.integration.cli.commands import run_command
from tests.interop.java_client import require_broker_jars
from tests.interop.kafka_broker import CLUSTER_ID, KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.cli.commands import Outcome

pytestmark = [pytest.mark.interop, pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    jars = require_broker_jars(tmp_path_factory.mktemp("maven"))
    scratch = tmp_path_factory.mktemp("kafka")
    broker = KafkaBroker(jars, scratch / "data", scratch, is_dynamic=True)
    # Formatted by our command, with Kafka's own settings: it must start on that.
    settings = ("--config", str(broker.settings_path))
    formatted = run_command("storage", "format", "-t", CLUSTER_ID, *settings)
    assert formatted.code == ExitCode.OK, formatted
    broker.start()
    yield broker
    broker.stop()


def run(kafka: KafkaBroker, *arguments: str, stdin: bytes = b"") -> Outcome:
    environment = {"MILLSTREAM_BOOTSTRAP_SERVER": kafka.address}
    return run_command(*arguments, stdin=stdin, environment=environment)


def values(outcome: Outcome) -> list[str]:
    assert outcome.code == ExitCode.OK, outcome
    return sorted(outcome.out.split())


def test_topics_are_made_written_read_and_described(kafka: KafkaBroker) -> None:
    assert run(kafka, "topics", "create", "plain", "-p", "2").code == ExitCode.OK
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        line = f"{codec}:{codec}\n".encode()
        assert run(kafka, "produce", "plain", "-K", ":", "-z", codec, stdin=line).code == 0

    assert values(run(kafka, "consume", "plain")) == ["gzip", "lz4", "none", "snappy", "zstd"]
    assert len(values(run(kafka, "consume", "plain", "--from-time", "1h", "-n", "3"))) == 3
    assert run(kafka, "topics", "describe", "plain").code == ExitCode.OK
    assert run(kafka, "configs", "alter", "-t", "plain", "retention.ms=99999").code == ExitCode.OK
    assert "99999" in run(kafka, "configs", "describe", "-t", "plain").out
    assert sum(row["count"] for row in run(kafka, "offsets", "plain", "--json").json()) == 5


def test_the_cluster_and_its_quorum_are_described(kafka: KafkaBroker) -> None:
    described = run(kafka, "cluster", "describe", "--json").json()
    assert described["cluster_id"] == CLUSTER_ID
    assert "metadata.version" in {each["feature"] for each in described["features"]}

    quorum = run(kafka, "quorum", "describe", "--json").json()
    assert [each["role"] for each in quorum["replicas"]] == ["leader"]


def write_transactions(kafka: KafkaBroker, topic: str) -> None:
    """Two that are committed, and one between them that is not."""
    assert run(kafka, "topics", "create", topic).code == ExitCode.OK
    producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": topic})
    producer.init_transactions(30)
    for value, is_committed in ((b"kept", True), (b"dropped", False), (b"kept-too", True)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(30)
        if is_committed:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)


def test_aborted_records_are_seen_or_left_out(kafka: KafkaBroker) -> None:
    write_transactions(kafka, "decided")

    assert values(run(kafka, "consume", "decided")) == ["dropped", "kept", "kept-too"]
    committed = run(kafka, "consume", "decided", "--isolation", "read_committed")
    assert values(committed) == ["kept", "kept-too"]


def test_its_files_are_shown_decoded_and_sound(kafka: KafkaBroker) -> None:
    write_transactions(kafka, "on-disk")
    kafka.stop()
    try:
        verified = run_command("log", "dump", str(kafka.data), "--verify")
        shown = run_command("log", "dump", str(kafka.data), "--records", "--json")
    finally:
        kafka.start()

    assert verified.code == ExitCode.OK, verified
    assert shown.code == ExitCode.OK
    rows = [json.loads(line) for line in shown.out.splitlines()]
    kinds = {row["kind"] for row in rows}
    assert kinds >= {"segment", "time_index", "transaction_index", "producer_snapshot"}
    records = [record for row in rows for record in row.get("records", ())]
    assert not any("problem" in record for record in records)
    names = {record.get("record") or record.get("control") for record in records}
    assert names >= {"TopicRecord", "TransactionLogKey", "ABORT", "COMMIT", "LEADER_CHANGE"}
