"""librdkafka's share consumer against broker processes, of which some are killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("confluent_kafka", reason="a client used only in tests")

from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from tests.integration.node.harness import Client, free_port, running

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from confluent_kafka import Message

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(120)]

POLLS_MAX = 120


def set_up(broker: str, group: str, **settings: str) -> None:
    """Let a group begin at the first record."""
    entries = {"share.auto.offset.reset": "earliest"} | {
        name.replace("_", "."): value for name, value in settings.items()
    }
    resource = ConfigResource(
        ResourceType.GROUP,
        group,
        incremental_configs=[
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in entries.items()
        ],
    )
    admin = AdminClient({"bootstrap.servers": broker})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()


def produce(broker: str, topic: str, count: int, first: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
    for number in range(first, first + count):
        producer.produce(topic, f"v{number}")
    assert producer.flush(20) == 0


def member(broker: str, group: str, topic: str, **settings: Any) -> ShareConsumer:
    consumer = ShareConsumer(
        {"bootstrap.servers": broker, "group.id": group}
        | {name.replace("_", "."): value for name, value in settings.items()}
    )
    consumer.subscribe([topic])
    return consumer


def text_of(message: Message) -> str:
    value = message.value()
    assert value is not None, message.error()
    return value.decode()


def take(consumer: ShareConsumer, count: int, polls_max: int = POLLS_MAX) -> list[str]:
    """The values of so many records, which are accepted with the next poll."""
    values: list[str] = []
    for _ in range(polls_max):
        values.extend(map(text_of, consumer.poll(0.5)))
        if len(values) >= count:
            break
    consumer.commit_sync()
    return values


def test_two_members_share_all_records(
    broker: str, topic: str, new_name: Callable[[str], str]
) -> None:
    group = new_name("sharers")
    set_up(broker, group)
    members = [member(broker, group, topic) for _ in range(2)]
    produce(broker, topic, 1000)
    seen: Counter[str] = Counter()
    for _ in range(POLLS_MAX):
        for each in members:
            seen.update(text_of(message) for message in each.poll(0.2))
        if seen.total() >= 1000:
            break
    for each in members:
        each.close()

    assert seen == Counter(f"v{number}" for number in range(1000))


def test_a_released_record_comes_again_and_a_rejected_one_does_not(
    broker: str, topic: str, new_name: Callable[[str], str]
) -> None:
    group = new_name("sharers")
    set_up(broker, group)
    produce(broker, topic, 3)
    consumer = member(broker, group, topic, share_acknowledgement_mode="explicit")
    first: set[str] = set()
    again: list[str] = []
    for _ in range(POLLS_MAX):
        for message in consumer.poll(0.5):
            value = text_of(message)
            if value in first:
                again.append(value)
                consumer.acknowledge(message, AcknowledgeType.ACCEPT)
                continue
            first.add(value)
            kind = AcknowledgeType.REJECT if value == "v0" else AcknowledgeType.RELEASE
            consumer.acknowledge(message, kind)
        consumer.commit_sync()
        if len(again) == 2:
            break
    consumer.close()

    assert first == {"v0", "v1", "v2"}
    assert sorted(again) == ["v1", "v2"]


def test_what_was_accepted_is_remembered_by_a_broker_that_was_killed(tmp_path: Path) -> None:
    listen = ("--listen", f"localhost:{free_port()}")
    with running(tmp_path / "data", *listen) as node:
        address = node.until_ready()
        with Client(address) as client:
            assert client.create_topic("jobs", 1) == 0
        set_up(address, "workers")
        produce(address, "jobs", 100)
        first = member(address, "workers", "jobs", max_poll_records=40)
        done = take(first, 40)
        node.finish(signal.SIGKILL)
    with running(tmp_path / "data", *listen) as node:
        address = node.until_ready()
        produce(address, "jobs", 10, first=100)
        second = member(address, "workers", "jobs")
        rest = take(second, 110 - len(done))
        second.close()
        first.close()

    assert Counter(done + rest) == Counter(f"v{number}" for number in range(110))


SILENT_MEMBER = """
import sys
from confluent_kafka import ShareConsumer
broker, group, topic = sys.argv[1:]
consumer = ShareConsumer({"bootstrap.servers": broker, "group.id": group})
consumer.subscribe([topic])
while not (taken := consumer.poll(0.5)):
    pass
print(len(taken), flush=True)
sys.stdin.read()
"""


def test_records_of_a_member_that_is_killed_go_to_others(
    broker: str, new_name: Callable[[str], str]
) -> None:
    group, topic = new_name("sharers"), new_name("jobs")
    with Client(broker) as client:
        assert client.create_topic(topic, 1) == 0
    set_up(broker, group)
    produce(broker, topic, 20)
    command = [sys.executable, "-c", SILENT_MEMBER, broker, group, topic]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as silent:
        assert silent.stdout is not None
        assert int(silent.stdout.readline()) > 0
        silent.kill()
    other = member(broker, group, topic)

    # Long before the locks of the records end, which is after 30 s.
    values = take(other, 20, polls_max=40)
    other.close()

    assert Counter(values) == Counter(f"v{number}" for number in range(20))
