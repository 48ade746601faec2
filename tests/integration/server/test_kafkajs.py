"""kafkajs, which is written in JavaScript from the socket up and shares no code with the others.

npm installs it into the user's cache directory, once. Most records are read by its own fetch
request, because its consumers always belong to a group; the groups have tests of their own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream.records import Compression, RecordBatch, partition_for_key, split_batches
from tests.integration.node.harness import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(180)]

PACKAGES = ("kafkajs@2.2.4", "kafkajs-snappy@1.1.0")
INSTALL_SECONDS_MAX = 100
DRIVER = Path(__file__).with_name("kafkajs_driver.cjs")
TOPIC_RESOURCE = 2
MESSAGES = [{"key": f"key {number}", "value": f"value {number}"} for number in range(500)]


class KafkaJSError(Exception):
    """What kafkajs threw: its name, message, and Kafka's names of the errors."""

    def __init__(self, name: str, message: str, types: list[str]) -> None:
        super().__init__(f"{name}: {message} {types}")
        self.types = types


class KafkaJS:
    """The driver, and what it is asked."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, action: str, **given: Any) -> Any:
        """The answer of an action of the driver."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"action": action, **given}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the driver ended; its stderr is above"
        answer = json.loads(line)
        if "error" in answer:
            raise KafkaJSError(**answer["error"])
        return answer["result"]

    def admin(self, method: str, argument: Any = None, *more: Any) -> Any:
        """A method of kafkajs' admin client."""
        return self.ask("admin", method=method, argument=argument, more=more)

    def produce(self, topic: str, messages: list[dict[str, Any]], **settings: Any) -> Any:
        """Send messages, in one call or in several at once."""
        return self.ask("produce", topic=topic, messages=messages, **settings)

    def fetch(self, topic: str, partition: int = 0, offset: int = 0) -> list[dict[str, Any]]:
        """All records from an offset on."""
        found: list[dict[str, Any]] = []
        while True:
            given = {"topic": topic, "partition": partition, "offset": offset}
            answer = self.ask("fetch", **given)
            found += [each for each in answer["records"] if each["offset"] >= offset]
            offset = found[-1]["offset"] + 1 if found else offset
            if offset >= answer["high"]:
                return found


def package_directory() -> Path:
    """Where the packages are, or will be: never in the tree."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "millstream" / "-".join(PACKAGES).replace("@", "-")


def require_packages() -> Path:
    """The directory that npm installed into; the tests are skipped if that cannot be."""
    directory = package_directory()
    if directory.exists():
        return directory
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed, and kafkajs is not in the cache")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
        _install(npm, scratch)
        if not directory.exists():  # Another worker may have been faster.
            Path(scratch, "done").rename(directory)
    return directory


def _install(npm: str, scratch: str) -> None:
    options = ["--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]
    command = [npm, "install", *options, "--fetch-retries=0", "--prefix", f"{scratch}/done"]
    Path(scratch, "done").mkdir()
    try:
        done = subprocess.run(
            [*command, *PACKAGES],
            cwd=scratch,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm did not bring kafkajs within {INSTALL_SECONDS_MAX} s")
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if "npm error" in line]
        pytest.skip(f"npm cannot bring kafkajs: {' '.join(said[:2]) or done.stderr[-200:]}")


@pytest.fixture(scope="module")
def kafkajs(broker: str) -> Iterator[KafkaJS]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    process = subprocess.Popen(
        [node, str(DRIVER), str(require_packages()), broker],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
    )
    try:
        yield KafkaJS(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture
def created(kafkajs: KafkaJS, topic: str) -> str:
    """A topic with one partition."""
    assert kafkajs.admin("createTopics", {"topics": [{"topic": topic}]})
    return topic


def batches_of(broker: str, topic: str) -> list[RecordBatch]:
    """The batches of partition 0 as they lie in the log."""
    with Client(broker) as client:
        error_code, records, _ = client.fetch(topic, 0)
    assert error_code == 0
    batches = list(split_batches(records))
    assert all(isinstance(batch, RecordBatch) for batch in batches)
    return [batch for batch in batches if isinstance(batch, RecordBatch)]


def test_the_cluster_is_described(kafkajs: KafkaJS, broker: str) -> None:
    described = kafkajs.admin("describeCluster")

    host, _, port = broker.rpartition(":")
    assert described["brokers"] == [{"nodeId": 1, "host": host, "port": int(port)}]
    assert described["controller"] == 1
    assert described["clusterId"]


def test_topics_are_created_described_grown_and_deleted(kafkajs: KafkaJS, topic: str) -> None:
    wanted = {"topic": topic, "numPartitions": 2, "replicationFactor": 1}
    assert kafkajs.admin("createTopics", {"topics": [wanted]}) is True
    assert kafkajs.admin("createTopics", {"topics": [wanted]}) is False
    assert topic in kafkajs.admin("listTopics")
    growth = {"topicPartitions": [{"topic": topic, "count": 3}]}
    kafkajs.admin("createPartitions", growth)

    [described] = kafkajs.admin("fetchTopicMetadata", {"topics": [topic]})["topics"]

    assert sorted(each["partitionId"] for each in described["partitions"]) == [0, 1, 2]
    assert {each["leader"] for each in described["partitions"]} == {1}
    kafkajs.admin("deleteTopics", {"topics": [topic]})
    assert topic not in kafkajs.admin("listTopics")


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ({"topic": "not/allowed"}, "INVALID_TOPIC_EXCEPTION"),
        ({"topic": "none", "numPartitions": 0}, "INVALID_PARTITIONS"),
        ({"topic": "far", "replicationFactor": 5}, "INVALID_REPLICATION_FACTOR"),
        (
            {"topic": "odd", "configEntries": [{"name": "retention.ms", "value": "soon"}]},
            "INVALID_CONFIG",
        ),
    ],
)
def test_topics_that_cannot_be_are_refused_by_name(
    kafkajs: KafkaJS, wanted: dict[str, Any], error: str
) -> None:
    with pytest.raises(KafkaJSError) as caught:
        kafkajs.admin("createTopics", {"topics": [wanted]})

    assert error in caught.value.types


def test_a_topic_that_is_not_there_cannot_be_deleted(kafkajs: KafkaJS, topic: str) -> None:
    with pytest.raises(KafkaJSError) as caught:
        kafkajs.admin("deleteTopics", {"topics": [topic]})

    assert "UNKNOWN_TOPIC_OR_PARTITION" in caught.value.types


def test_settings_are_changed_and_described(kafkajs: KafkaJS, created: str) -> None:
    resource = {"type": TOPIC_RESOURCE, "name": created}
    change = resource | {"configEntries": [{"name": "retention.ms", "value": "123456"}]}

    kafkajs.admin("alterConfigs", {"validateOnly": False, "resources": [change]})

    asked = resource | {"configNames": ["retention.ms", "cleanup.policy"]}
    answer = kafkajs.admin("describeConfigs", {"includeSynonyms": True, "resources": [asked]})
    entries = {each["configName"]: each for each in answer["resources"][0]["configEntries"]}
    assert entries["retention.ms"]["configValue"] == "123456"
    assert entries["retention.ms"]["isDefault"] is False
    assert entries["cleanup.policy"]["configValue"] == "delete"
    assert entries["cleanup.policy"]["isDefault"] is True


@pytest.mark.parametrize("codec", ["None", "GZIP", "Snappy"])
def test_what_is_produced_with_a_codec_is_fetched(
    kafkajs: KafkaJS, broker: str, created: str, codec: str
) -> None:
    [sent] = kafkajs.produce(created, MESSAGES, codec=codec)

    assert (sent["errorCode"], sent["baseOffset"]) == (0, "0")
    found = kafkajs.fetch(created)
    assert [{"key": each["key"], "value": each["value"]} for each in found] == MESSAGES
    assert [each["offset"] for each in found] == list(range(len(MESSAGES)))
    used = {batch.compression for batch in batches_of(broker, created)}
    assert used == {Compression.parse(codec.lower())}


def test_headers_nulls_and_timestamps_are_kept(kafkajs: KafkaJS, created: str) -> None:
    headers = {"one": "1", "many": ["a", "b"], "text": "ß"}
    messages: list[dict[str, Any]] = [
        {"key": "k", "value": "v", "headers": headers, "timestamp": "1700000000001"},
        {"key": "gone", "value": None, "timestamp": "1700000000002"},
        {"value": "", "timestamp": "1700000000003"},
    ]

    kafkajs.produce(created, messages)

    first, second, third = kafkajs.fetch(created)
    assert (first["headers"], first["timestamp"]) == (headers, 1_700_000_000_001)
    assert (second["key"], second["value"]) == ("gone", None)
    assert (third["key"], third["value"], third["headers"]) == (None, "", {})


@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_every_kind_of_acknowledgement(kafkajs: KafkaJS, created: str, acks: int) -> None:
    kafkajs.produce(created, MESSAGES[:10], acks=acks)

    found: list[dict[str, Any]] = []
    while len(found) < 10:  # without an acknowledgement nobody says when they are there
        found = kafkajs.fetch(created)
    assert [each["value"] for each in found] == [each["value"] for each in MESSAGES[:10]]


def test_an_idempotent_producer(kafkajs: KafkaJS, broker: str, created: str) -> None:
    kafkajs.produce(created, MESSAGES[:10], idempotent=True, maxInFlightRequests=1, batches=5)

    assert len(kafkajs.fetch(created)) == 50
    batches = batches_of(broker, created)
    assert {batch.producer_id for batch in batches} != {-1}
    assert len({batch.producer_id for batch in batches}) == 1
    assert [batch.base_sequence for batch in batches] == [0, 10, 20, 30, 40]


def test_a_topic_comes_into_being_when_it_is_written_to(kafkajs: KafkaJS, topic: str) -> None:
    kafkajs.produce(topic, MESSAGES[:1], allowAutoTopicCreation=True)

    assert topic in kafkajs.admin("listTopics")


def test_keys_go_where_we_would_send_them(kafkajs: KafkaJS, topic: str) -> None:
    kafkajs.admin("createTopics", {"topics": [{"topic": topic, "numPartitions": 5}]})

    kafkajs.produce(topic, MESSAGES[:50])

    for partition in range(5):
        for record in kafkajs.fetch(topic, partition):
            assert partition_for_key(record["key"].encode(), 5) == partition


def test_a_message_that_is_too_large_is_refused_by_name(kafkajs: KafkaJS, created: str) -> None:
    with pytest.raises(KafkaJSError) as caught:
        kafkajs.produce(created, [{"value": "x" * 1_100_000}])

    assert "MESSAGE_TOO_LARGE" in caught.value.types


def test_offsets_by_time_and_after_deletion(kafkajs: KafkaJS, created: str) -> None:
    times = [{"value": str(number), "timestamp": str(1000 * number)} for number in range(1, 11)]
    for message in times:
        kafkajs.produce(created, [message])

    [ends] = kafkajs.admin("fetchTopicOffsets", created)
    assert (ends["low"], ends["high"]) == ("0", "10")
    for timestamp, offset in ((1, "0"), (3000, "2"), (3001, "3"), (99_000, "10")):
        [at] = kafkajs.admin("fetchTopicOffsetsByTimestamp", created, timestamp)
        assert at["offset"] == offset
    before = {"topic": created, "partitions": [{"partition": 0, "offset": "4"}]}
    kafkajs.admin("deleteTopicRecords", before)
    [ends] = kafkajs.admin("fetchTopicOffsets", created)
    assert (ends["low"], ends["high"]) == ("4", "10")
    assert [each["value"] for each in kafkajs.fetch(created, offset=4)] == [*"56789", "10"]


@pytest.mark.parametrize("members", [1, 3])
def test_members_of_a_group_share_a_topic(kafkajs: KafkaJS, topic: str, members: int) -> None:
    kafkajs.admin("createTopics", {"topics": [{"topic": topic, "numPartitions": 3}]})
    kafkajs.produce(topic, MESSAGES)

    read = kafkajs.ask(
        "group", topic=topic, groupId=f"group of {topic}", members=members, count=len(MESSAGES)
    )

    assert set(read) == {each["value"] for each in MESSAGES}
    described = kafkajs.admin("describeGroups", [f"group of {topic}"])["groups"]
    assert [(each["errorCode"], each["state"]) for each in described] == [(0, "Empty")]


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_with_offsets(
    kafkajs: KafkaJS, created: str, topic_name: Callable[[], str], commits: bool
) -> None:
    source, group = topic_name(), f"transformer of {created}"
    kafkajs.admin("createTopics", {"topics": [{"topic": source, "numPartitions": 1}]})

    kafkajs.ask(
        "transaction",
        topic=created,
        groupId=group,
        source=source,
        offset=7,
        messages=MESSAGES[:10],
        commits=commits,
    )

    (offsets,) = kafkajs.admin("fetchOffsets", {"groupId": group, "topics": [source]})
    assert offsets["partitions"][0]["offset"] == ("7" if commits else "-1")
    assert len(kafkajs.fetch(created)) == 11, "the marker is a record of the raw fetch"
