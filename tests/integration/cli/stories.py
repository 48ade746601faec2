"""What groups and transactions go through, told with commands and real clients.

The same stories are told against Millstream and against Apache Kafka. Each has names of its own,
so that several can be told to one broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, Producer

from millstream.cli.faults import ExitCode
from millstream.protocol.messages import ShareGroupHeartbeatRequest
from millstream.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatResponse
from tests.integration.cli.hanging import leave_hanging
from tests.integration.node.harness import Client
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.cli.commands import Outcome

    Run = Callable[..., Outcome]

SECONDS_MAX = 60
HOUR_MS = 3_600_000
_LEAVE = -1


def refusal(outcome: Outcome) -> str:
    """The one line of a command that must fail."""
    assert outcome.code != ExitCode.OK, outcome
    assert outcome.err.count("\n") == 1, outcome
    return outcome.err


def fill(run: Run, topic: str, *counts: int) -> None:
    """Make a topic with so many records in each partition."""
    run("topics", "create", topic, "-p", str(len(counts)), "--if-not-exists", "--json").json()
    for partition, count in enumerate(counts):
        add(run, topic, partition, count)


def add(run: Run, topic: str, partition: int, count: int) -> None:
    """Write some more records."""
    lines = "".join(f"{number}\n" for number in range(count))
    run("produce", topic, "-p", str(partition), "--json", stdin=lines).json()


class Reader:
    """A consumer that is polled while somebody waits."""

    def __init__(self, address: str, group: str, topic: str, settings: dict[str, Any]) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "client.id": f"reader-of-{topic}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
                **settings,
            }
        )
        self._consumer.subscribe([topic])
        self.count = 0

    def poll(self) -> None:
        """Read what is there."""
        for message in self._consumer.consume(100, timeout=0.1):
            assert message.error() is None, message.error()
            self.count += 1

    def read(self, count: int) -> None:
        """Read so many records and commit."""

        def have_read() -> bool:
            self.poll()
            return self.count >= count

        until(have_read)
        assert self.count == count
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        """Leave."""
        self._consumer.close()


def tell_of_a_group(run: Run, address: str, name: str, settings: dict[str, Any]) -> None:
    """Somebody reads and commits, is behind, leaves, and begins again where it is told to."""
    fill(run, name, 20, 10)
    reader = Reader(address, name, name, settings)
    reader.read(30)

    [described] = run("groups", "describe", name, "--json").json()
    assert (described["state"], described["members"], described["lag"]) == ("Stable", 1, 0)
    assert {row["client"] for row in described["partitions"]} == {f"reader-of-{name}"}
    [member] = run("groups", "members", name, "--json").json()
    assert (member["assigned"], member["subscribed"]) == ({name: [0, 1]}, [name])
    add(run, name, 1, 5)
    assert run("groups", "describe", name, "--json").json()[0]["lag"] == 5

    reset = ("groups", "reset-offsets", name, "--topic", name)
    assert "has 1 member (Stable)" in refusal(run(*reset, "--to-earliest", "--execute"))
    assert "is in use (Stable)" in refusal(run("groups", "delete", name))
    assert f"read '{name}' now" in refusal(run("groups", "delete-offsets", name, "-t", name))
    reader.close()
    until(lambda: run("groups", "describe", name, "--json").json()[0]["state"] == "Empty")

    planned = run(*reset, "--to-offset", "15", "--json").json()
    assert [(row["old"], row["new"]) for row in planned["partitions"]] == [(20, 15), (10, 15)]
    assert run("groups", "describe", name, "--json").json()[0]["lag"] == 5
    run(*reset, "--to-offset", "15", "--execute", "--json").json()
    again = Reader(address, name, name, settings)
    again.read(5)
    again.close()


def tell_of_moved_offsets(run: Run, name: str, scratch: Path) -> None:
    """A group that nobody has read with yet: it is given offsets, they are kept, lost, restored."""
    fill(run, name, 20, 10)
    reset = ("groups", "reset-offsets", name)

    def new(*arguments: str) -> list[int]:
        done = run(*reset, *arguments, "--execute", "--json").json()
        assert done["executed"]
        [described] = run("groups", "describe", name, "--json").json()
        assert [row["committed"] for row in described["partitions"]] == [
            row["new"] for row in done["partitions"]
        ]
        return [row["new"] for row in done["partitions"]]

    assert new("-t", name, "--to-latest") == [20, 10]
    assert new("--all-topics", "--shift", "-12") == [8, 0]
    assert new("-t", name, "--to-time", "1h") == [0, 0]
    assert new("-t", name, "--to-time", "now") == [20, 10]
    assert new("-t", name, "--by-duration", "PT1H") == [0, 0]
    assert new("-t", name, "--to-offset", "7") == [7, 7]
    file = scratch / "offsets.csv"
    file.write_text(run(*reset, "--all-topics", "--to-current", "--export").out)
    assert new("-t", name, "--to-earliest") == [0, 0]
    assert new("--from-file", str(file)) == [7, 7]

    assert name in {row["group"] for row in run("groups", "list", "--json").json()}
    stable = run("groups", "list", "--state", "stable", "--json").json()
    assert name not in {row["group"] for row in stable}
    forgotten = run("groups", "delete-offsets", name, "-t", f"{name}:1", "--json").json()
    assert forgotten == [{"topic": name, "partition": 1, "deleted": True}]
    [described] = run("groups", "describe", name, "--json").json()
    assert [row["partition"] for row in described["partitions"]] == [0]
    assert run("groups", "delete", name).out == f"{name}: deleted\n"
    assert f"there is no group '{name}'" in refusal(run("groups", "describe", name))


def tell_of_a_transaction(run: Run, address: str, name: str) -> None:
    """One is open, which everybody can see and nobody may end; then it is committed."""
    fill(run, name, 0, 0)
    producer = Producer({"bootstrap.servers": address, "transactional.id": name, "log_level": 0})
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce(name, b"x", partition=1)
    producer.flush(SECONDS_MAX)

    def state() -> str:
        [described] = run("transactions", "describe", name, "--json").json()
        return str(described["state"])

    ongoing = run("transactions", "list", "--state", "ongoing", "--json").json()
    [listed] = [row for row in ongoing if row["transactional_id"] == name]
    [described] = run("transactions", "describe", name, "--json").json()
    assert described["partitions"] == {name: [1]}
    assert described["producer_id"] == listed["producer_id"]
    [row] = run("transactions", "producers", name, "--open", "--json").json()
    assert (row["partition"], row["start_offset"]) == (1, 0)
    assert run("transactions", "find-hanging", "-t", name, "--max-timeout", "0s").out == (
        "no transaction hangs\n"
    )
    abort = ("transactions", "abort", name, "1", "--start-offset", "0", "--yes")
    assert "it does not hang" in refusal(run(*abort))
    assert (
        run("transactions", "list", "--older-than", "1h", "--pattern", name, "--json").json() == []
    )

    producer.commit_transaction(SECONDS_MAX)
    until(lambda: state() == "CompleteCommit")
    assert "has no open transaction" in refusal(run(*abort))
    assert run("consume", name, "--isolation", "read_committed").out == "x\n"


def tell_of_a_hanging_transaction(run: Run, address: str, name: str) -> None:
    """Nobody will end it, and readers wait behind it: it is found and aborted."""
    fill(run, name, 0, 0)
    producer_id = leave_hanging(address, name, 1, age_ms=HOUR_MS)
    add(run, name, 1, 1)
    committed = ("consume", name, "--isolation", "read_committed")
    assert run(*committed).out == ""

    assert (
        run("transactions", "find-hanging", "-t", name, "--max-timeout", "2h", "--json").json()
        == []
    )
    [row] = run("transactions", "find-hanging", "-t", name, "--json").json()
    assert (row["partition"], row["producer_id"], row["start_offset"]) == (1, producer_id, 0)
    everywhere = run("transactions", "find-hanging", "--json").json()
    assert row["start_offset"] in [
        each["start_offset"] for each in everywhere if each["topic"] == name
    ]

    aborted = run("transactions", "abort", name, "1", "--start-offset", "0", "--yes")
    assert f"aborted the transaction of producer {producer_id}" in aborted.out, aborted
    assert run("transactions", "find-hanging", "-t", name).out == "no transaction hangs\n"
    assert run(*committed).out == "0\n"


class ShareMember:
    """A member of a share group that takes nothing; it stays as long as it is not forgotten."""

    def __init__(self, address: str, group: str, topic: str) -> None:
        self._client = Client(address)
        self._group = group
        self._topic = topic
        self._epoch = 0

    def join(self) -> bool:
        """Say hello, or that it is still there; whether it has partitions."""
        answer = self._beat(self._epoch)
        if answer.error_code:
            return False  # Its coordinator is not ready yet.
        self._epoch = answer.member_epoch
        return answer.assignment is not None and bool(answer.assignment.topic_partitions)

    def leave(self) -> None:
        """Say goodbye and hang up."""
        self._beat(_LEAVE)
        self._client.socket.close()

    def _beat(self, epoch: int) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=self._group,
            member_id="AAAAAAAAAAAAAAAAAAAAAQ",
            member_epoch=epoch,
            subscribed_topic_names=[self._topic],
        )
        return self._client.ask(request, 1, ShareGroupHeartbeatResponse)


def tell_of_a_share_group(run: Run, address: str, name: str) -> None:
    """A member comes, is seen, and goes; the group is moved, and deleted."""
    fill(run, name, 20, 10)
    # Whoever asks for the coordinator of a group makes the topic that it needs.
    assert "no share group" in refusal(run("share-groups", "describe", name))
    member = ShareMember(address, name, name)
    until(member.join)

    assert name in {row["group"] for row in run("share-groups", "list", "--json").json()}
    assert "is a share group" in refusal(run("groups", "describe", name))
    [row] = run("share-groups", "members", name, "--json").json()
    assert row["assigned"] == {name: [0, 1]}
    reset = ("share-groups", "reset-offsets", name, "--topic", name)
    assert "has 1 member (Stable)" in refusal(run(*reset, "--to-earliest", "--execute"))
    assert "is in use (Stable)" in refusal(run("share-groups", "delete", name))
    member.leave()

    run(*reset, "--to-offset", "5", "--execute", "--json").json()
    [described] = run("share-groups", "describe", name, "--json").json()
    assert (described["state"], described["members"], described["lag"]) == ("Empty", 0, 20)
    assert [(row["start"], row["end"]) for row in described["partitions"]] == [(5, 20), (5, 10)]
    forgotten = run("share-groups", "delete-offsets", name, "-t", name)
    assert forgotten.out == f"{name}: forgot where it was in {name}\n", forgotten
    assert "has no offsets" in refusal(run("share-groups", "delete-offsets", name, "-t", name))
    assert run("share-groups", "delete", name).out == f"{name}: deleted\n"
    assert "no share group" in refusal(run("share-groups", "members", name))
