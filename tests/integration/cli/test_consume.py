"""`millstream consume` as a process against a broker that is another one."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from millstream.cli.faults import ExitCode
from millstream.client.admin import Admin
from millstream.types import TopicPartition
from tests.integration.cli.commands import SECONDS_MAX, command_line, run_command
from tests.integration.node.harness import free_port, running
from tests.schema_registry import running_registry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.cli.commands import Outcome

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    # A record of 1970 must outlive the next look for old ones.
    with running(tmp_path_factory.mktemp("broker"), "--set", "log.retention.ms=-1") as node:
        yield node.until_ready()


class Cluster:
    """Commands with a topic of their own."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.environment = {"MILLSTREAM_BOOTSTRAP_SERVER": bootstrap}
        self.topic = topic
        assert self.run("topics", "create", topic, "--partitions", "2").code == ExitCode.OK

    def run(self, *arguments: str, stdin: bytes = b"") -> Outcome:
        return run_command(*arguments, stdin=stdin, environment=self.environment)

    def produce(self, stdin: bytes, *options: str) -> None:
        assert self.run("produce", self.topic, *options, stdin=stdin).code == ExitCode.OK

    def consume(self, *options: str) -> Outcome:
        return self.run("consume", self.topic, *options)

    def delete_records(self, partition: int, *, before: int) -> None:
        with Admin(self.environment["MILLSTREAM_BOOTSTRAP_SERVER"]) as admin:
            place = TopicPartition(self.topic, partition)
            assert admin.delete_records({place: before})[place] == before

    def start_consuming(self, *options: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command_line("consume", self.topic, *options),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **self.environment},
        )


@pytest.fixture
def cluster(bootstrap: str, request: pytest.FixtureRequest) -> Cluster:
    return Cluster(bootstrap, request.node.name.replace("[", ".").replace("]", ""))


def test_it_prints_what_is_there_and_stops(cluster: Cluster) -> None:
    cluster.produce(b"a:1\nb:2\nc:3\n", "-K", ":")

    assert sorted(cluster.consume().out.split()) == ["1", "2", "3"]
    assert sorted(cluster.consume("-K", ":").out.split()) == ["a:1", "b:2", "c:3"]
    assert cluster.consume("--count", "2").out.count("\n") == 2
    assert cluster.consume("--until", "1h").out == ""
    assert cluster.consume("--from-time", "1h", "--until", "+1h").out.count("\n") == 3


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(cluster: Cluster, codec: str) -> None:
    lines = "".join(f"value {number}\n" for number in range(500))
    cluster.produce(lines.encode(), "-z", codec, "-p", "0")

    assert cluster.consume().out == lines


def test_it_begins_where_it_is_told_to(cluster: Cluster) -> None:
    cluster.produce(b"0\n1\n2\n3\n", "-p", "1")

    assert cluster.consume("-p", "1", "--offset", "2").out == "2\n3\n"
    assert cluster.consume("-p", "1", "--offset", "-1").out == "3\n"
    beyond = cluster.consume("-p", "1", "--offset", "9")
    assert beyond.code == ExitCode.FAILED
    assert f"{cluster.topic}-1 ends at offset 4" in beyond.err


def test_its_json_can_be_produced_again(cluster: Cluster) -> None:
    line = '{"key": "k", "value": {"hex": "00ff"}, "headers": [["h", "v"]], "timestamp": 5}\n'
    cluster.produce(line.encode(), "--input", "json")

    printed = cluster.consume("--json").out
    cluster.produce(printed.encode(), "--input", "json")

    first, second = map(json.loads, cluster.consume("--json").out.splitlines())
    assert first.pop("offset") + 1 == second.pop("offset")
    assert first == second
    assert first["value"] == {"base64": "AP8="}
    assert (first["topic"], first["timestamp"]) == (cluster.topic, 5)


def test_following_goes_on_until_ctrl_c(cluster: Cluster) -> None:
    cluster.produce(b"before\n", "-p", "0")
    with cluster.start_consuming("--follow") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"before\n"
        cluster.produce(b"after\n", "-p", "1")
        assert process.stdout.readline() == b"after\n"

        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=SECONDS_MAX)

    assert (process.returncode, out, err) == (ExitCode.INTERRUPTED, b"", b"")


def test_a_reader_that_has_enough_ends_it_even_while_nothing_comes(cluster: Cluster) -> None:
    cluster.produce(b"one\n", "-p", "0")
    with cluster.start_consuming("--follow") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"one\n"
        process.stdout.close()

        # stderr ends when the process does.
        assert select.select([process.stderr], [], [], SECONDS_MAX)[0]
        assert process.stderr.read() == b""
        assert process.wait(SECONDS_MAX) == ExitCode.BROKEN_PIPE


def test_head_ends_it_without_a_word(cluster: Cluster) -> None:
    cluster.produce(b"a line that is not short\n" * 20_000, "-p", "0")
    with cluster.start_consuming() as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"a line that is not short\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(SECONDS_MAX) == ExitCode.BROKEN_PIPE


def test_deleted_offsets_are_told_and_passed_over(cluster: Cluster) -> None:
    cluster.produce(b"0\n1\n2\n", "-p", "0")
    cluster.delete_records(0, before=2)

    result = cluster.consume("--offset", "0", "-p", "0", "--isolation", "read_committed")

    assert (result.code, result.out) == (ExitCode.OK, "2\n")
    assert "offsets 0 to 1 are deleted; going on at 2" in result.err


def test_following_survives_a_restart_of_the_broker(tmp_path: Path) -> None:
    listen = ("--listen", f"127.0.0.1:{free_port()}")
    with running(tmp_path / "data", *listen) as node:
        restarted = Cluster(node.until_ready(), "restarted")
        with restarted.start_consuming("--follow") as process:
            assert process.stdout is not None
            restarted.produce(b"before\n", "-p", "0")
            assert process.stdout.readline() == b"before\n"
            node.finish(signal.SIGTERM)
            with running(tmp_path / "data", *listen) as again:
                again.until_ready()
                restarted.produce(b"after\n", "-p", "0")
                assert process.stdout.readline() == b"after\n"
                process.send_signal(signal.SIGINT)
                said = process.communicate(timeout=SECONDS_MAX)[1].splitlines()
    assert all(b"cannot be reached" in line for line in said), said


def test_values_with_a_type_go_in_and_out_as_json(cluster: Cluster, tmp_path: Path) -> None:
    schema = tmp_path / "order.avsc"
    schema.write_text(
        '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
    )
    with running_registry() as registry:
        typed = ("--value-type", "avro", "--key-type", "int32", "--schema-registry", registry.url)
        cluster.produce(b'1:{"id": 11}\n', *typed, "--value-schema", str(schema), "-K", ":")
        (line,) = cluster.consume(*typed, "--json").out.splitlines()

    assert (json.loads(line)["key"], json.loads(line)["value"]) == (1, {"id": 11})
    refused = cluster.consume("--value-type", "int64")
    assert refused.code == ExitCode.FAILED
    assert "at offset 0" in refused.err


def test_members_of_a_group_go_on_behind_what_was_printed(cluster: Cluster) -> None:
    group = f"readers of {cluster.topic}"
    cluster.produce(b"0\n1\n2\n3\n4\n", "-p", "0")
    cluster.produce(b"5\n", "-p", "1")

    first = cluster.consume("--group", group, "--count", "2")
    rest = cluster.consume("--group", group, "--isolation", "read_committed")
    nothing = cluster.consume("--group", group)
    cluster.produce(b"6\n", "-p", "1")
    new = cluster.consume("--group", group, "--json")

    assert [first.code, rest.code, nothing.code, new.code] == [ExitCode.OK] * 4
    assert sorted((first.out + rest.out).split()) == ["0", "1", "2", "3", "4", "5"]
    assert len(first.out.split()) == 2
    assert nothing.out == ""
    assert json.loads(new.out)["value"] == "6"
    [described] = cluster.run("groups", "describe", group, "--json").json()
    assert (described["state"], described["lag"]) == ("Empty", 0)


def test_following_in_a_group_commits_as_it_goes_and_leaves_at_the_end(cluster: Cluster) -> None:
    with cluster.start_consuming("--group", cluster.topic, "--follow") as process:
        assert process.stdout is not None
        cluster.produce(b"one\n", "-p", "0")
        assert process.stdout.readline() == b"one\n"
        cluster.produce(b"two\n", "-p", "0")
        assert process.stdout.readline() == b"two\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=SECONDS_MAX)

    assert (process.returncode, out, err) == (ExitCode.INTERRUPTED, b"", b"")
    assert cluster.run("groups", "members", cluster.topic, "--json").json() == []
    again = cluster.consume("--group", cluster.topic)
    assert (again.code, again.out) in ((ExitCode.OK, ""), (ExitCode.OK, "two\n"))


@pytest.mark.parametrize(
    "options",
    [("--from-end", "--follow"), ("--offset", "3"), ("--from-time", "2h"), ("--partition", "0")],
)
def test_a_group_knows_itself_where_to_begin(cluster: Cluster, options: tuple[str, ...]) -> None:
    refused = cluster.consume("--group", "readers", *options)

    assert refused.code == ExitCode.USAGE
    assert f"leave out {options[0]}; `millstream groups reset-offsets readers" in refused.err
