"""Every command once against an embedded broker, and what it says to wrong input."""

from __future__ import annotations

import io
import json
import logging
import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from millstream.cli.faults import ExitCode
from millstream.cli.main import main
from millstream.testing import EmbeddedBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Run = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def run(
    broker: EmbeddedBroker,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Run:
    """Run a command line; its exit code, stdout and stderr."""
    monkeypatch.setenv("MILLSTREAM_BOOTSTRAP_SERVER", broker.bootstrap_servers)

    def run(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        (tmp_path / "stdin").write_text(stdin)
        with (tmp_path / "stdin").open() as file:
            monkeypatch.setattr("sys.stdin", file)
            code = main(arguments)
        printed = capfd.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture
def topic(run: Run, request: pytest.FixtureRequest) -> str:
    """A topic of this test, with two partitions."""
    name = request.node.name.replace("[", ".").replace("]", "")[:80]
    assert run("topics", "create", name, "--partitions", "2")[0] == ExitCode.OK
    return str(name)


def as_json(result: tuple[int, str, str]) -> Any:
    code, out, err = result
    assert (code, err) == (ExitCode.OK, "")
    return json.loads(out)


def ends_of(run: Run, topic: str) -> dict[int, int]:
    rows = as_json(run("offsets", topic, "--json"))
    return {row["partition"]: row["latest"] for row in rows}


def test_topics_are_created_listed_described_altered_and_deleted(run: Run, topic: str) -> None:
    assert topic in run("topics", "list")[1]
    assert topic in {row["topic"] for row in as_json(run("topics", "list", "--json"))}
    assert topic in run("topics", "describe", topic)[1]

    assert run("topics", "alter", topic, "--partitions", "3")[0] == ExitCode.OK
    [described] = as_json(run("topics", "describe", topic, "--json"))
    assert len(described["partitions"]) == 3

    assert run("topics", "delete", topic)[0] == ExitCode.OK
    assert topic not in run("topics", "list")[1]
    assert run("topics", "delete", topic, "--if-exists")[0] == ExitCode.OK


def test_creating_a_topic_twice_is_refused_unless_that_is_fine(run: Run, topic: str) -> None:
    code, _, err = run("topics", "create", topic)

    assert code == ExitCode.FAILED
    assert topic in err
    assert run("topics", "create", topic, "--if-not-exists")[0] == ExitCode.OK


def test_validating_a_topic_creates_nothing(run: Run) -> None:
    assert run("topics", "create", "only-checked", "--validate-only")[0] == ExitCode.OK

    assert "only-checked" not in run("topics", "list")[1]


def test_settings_of_a_topic_are_changed_and_go_back(run: Run, topic: str) -> None:
    assert run("configs", "alter", "--topic", topic, "retention.ms=1234")[0] == ExitCode.OK
    assert "1234" in run("configs", "describe", "--topic", topic)[1]

    assert run("configs", "alter", "--topic", topic, "--delete", "retention.ms")[0] == ExitCode.OK
    assert "1234" not in run("configs", "describe", "--topic", topic)[1]
    shown = as_json(run("configs", "describe", "--topic", topic, "--all", "--json"))
    assert "retention.ms" in json.dumps(shown)


@pytest.mark.parametrize(
    ("whose", "key", "value"),
    [
        (("--group", "readers"), "consumer.session.timeout.ms", "50000"),
        (("--client-metrics", "all"), "interval.ms", "1000"),
        (("--broker-logger", "1"), "millstream.tests.some", "ERROR"),
    ],
)
def test_settings_of_groups_metrics_and_loggers(
    run: Run, whose: tuple[str, str], key: str, value: str
) -> None:
    logging.getLogger("millstream.tests.some")

    code, _, err = run("configs", "alter", *whose, f"{key}={value}")
    assert (code, "no setting" in err) == (ExitCode.OK, False)
    shown = as_json(run("configs", "describe", *whose, "--json"))
    assert {each["key"]: each["value"] for each in shown}[key] == value

    assert run("configs", "alter", *whose, "--delete", key)[0] == ExitCode.OK
    shown = as_json(run("configs", "describe", *whose, "--all", "--json"))
    assert {each["key"]: each["value"] for each in shown}[key] != value


def test_a_wrong_setting_of_a_group_gets_the_nearest_one(run: Run) -> None:
    code, _, err = run("configs", "alter", "--group", "g", "consumer.session.timeout=1")

    assert code == ExitCode.FAILED
    assert "did you mean 'consumer.session.timeout.ms'?" in err
    assert run("configs", "describe", "--group", "")[0] == ExitCode.USAGE
    assert run("configs", "describe", "--group", "g", "--cluster")[0] == ExitCode.USAGE


def test_settings_of_a_broker_and_of_the_cluster_are_shown(run: Run) -> None:
    assert "node.id" in run("configs", "describe", "--broker", "1", "--all")[1]
    assert run("configs", "describe", "--cluster")[0] == ExitCode.OK


def test_lines_of_stdin_become_records(run: Run, topic: str) -> None:
    code, _, err = run(
        "produce", topic, "--key-separator", ":", "--header", "from=test", "--compression", "zstd",
        stdin="a:1\nb:2\nc:3\n",
    )  # fmt: skip

    assert code == ExitCode.OK, err
    assert sum(ends_of(run, topic).values()) == 3


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_records_are_written_with_any_acknowledgement(run: Run, topic: str, acks: str) -> None:
    assert run("produce", topic, "--acks", acks, "--partition", "1", stdin="x\n")[0] == ExitCode.OK

    while ends_of(run, topic)[1] != 1:  # with acks 0 nobody says when it is there
        pass


def test_the_cluster_and_its_quorum_are_described(run: Run, broker: EmbeddedBroker) -> None:
    port = int(broker.bootstrap_servers.rpartition(":")[2])
    found = as_json(run("cluster", "describe", "--json"))
    assert [(each["broker"], each["port"]) for each in found["brokers"]] == [(1, port)]
    assert found["controller"] == 1
    assert {"feature": "share.version", "level": 1, "release": None, "supported": "0-1"} in (
        found["features"]
    )
    text = run("cluster", "describe")[1]
    assert found["cluster_id"] in text
    assert "4.3-IV0" in text

    quorum = as_json(run("quorum", "describe", "--json"))
    [replica] = quorum["replicas"]
    assert (replica["node"], replica["role"], replica["lag"]) == (1, "leader", 0)
    assert replica["log_end_offset"] >= quorum["high_watermark"] > 0
    assert "leader epoch:" in run("quorum", "describe")[1]


def test_what_is_produced_is_consumed(run: Run, topic: str) -> None:
    produced = as_json(run("produce", topic, "-p", "0", "--json", stdin="a\nb\nlast"))
    assert (produced["topic"], produced["records"]) == (topic, 3)

    assert run("consume", topic)[:2] == (ExitCode.OK, "a\nb\nlast\n")
    assert run("consume", topic, "-o", "-1", "-p", "0")[1] == "last\n"


def test_json_lines_say_where_records_go(run: Run, topic: str) -> None:
    lines = '{"value": 1, "partition": 1}\n{"key": "k", "value": {"hex": "ff"}, "timestamp": 5}\n'
    # The next look for old records would delete that of 1970.
    assert run("configs", "alter", "--topic", topic, "retention.ms=-1")[0] == ExitCode.OK
    assert run("produce", topic, "--input", "json", stdin=lines)[0] == ExitCode.OK

    code, out, _ = run("consume", topic, "--json", "-e", "hex")
    values = {record["value"]["hex"] for record in map(json.loads, out.splitlines())}
    assert (code, values) == (ExitCode.OK, {"31", "ff"})
    code, _, err = run("produce", topic, "--input", "json", stdin='{"value": 1, "partition": 7}\n')
    assert code == ExitCode.FAILED
    assert "has no partition 7" in err


def test_a_fault_in_the_middle_says_how_far_it_came(run: Run, topic: str, tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text(f"k:{'v' * 100}\n" * 2000)
    bad.write_text("no separator\n")

    code, _, err = run("produce", topic, "-K", ":", str(good), str(bad))

    written = sum(ends_of(run, topic).values())
    assert code == ExitCode.FAILED
    assert written == 2000  # all that came before it
    assert f"separator ':': 'no separator' (after {written:,} records)" in err


def test_a_setting_that_nobody_knows_is_taken_with_a_warning(run: Run) -> None:
    code, _, err = run("configs", "alter", "--cluster", "log.retention.sm=1")

    assert code == ExitCode.OK
    assert "did you mean 'log.retention.ms'?" in err
    assert run("configs", "alter", "--cluster", "--delete", "log.retention.sm")[0] == ExitCode.OK


def test_a_null_is_a_tombstone_both_ways(run: Run, topic: str) -> None:
    assert run("produce", topic, "-K", ":", "--null", "NIL", stdin="k:NIL\n")[0] == ExitCode.OK

    assert run("consume", topic, "-K", "=")[1] == "k=null\n"


def test_settings_are_changed_by_lists_and_told_as_json(run: Run, topic: str) -> None:
    policy = ("configs", "alter", "--topic", topic, "--json")
    assert as_json(run(*policy, "cleanup.policy+=compact"))["changed"] == ["cleanup.policy"]
    altered = as_json(run("topics", "alter", topic, "-c", "retention.ms=5", "--json"))
    assert altered == {"topic": topic, "partitions": 2, "changed": ["retention.ms"]}
    assert "changed retention.ms" in run("topics", "alter", topic, "-c", "retention.ms=6")[1]
    assert "compact" in run("topics", "describe", topic)[1]
    as_json(run(*policy, "cleanup.policy-=compact"))
    assert "compact" not in run("topics", "describe", topic)[1]
    assert run("configs", "describe", "--broker", "1")[0] == ExitCode.OK


def test_partitions_only_grow(run: Run, topic: str) -> None:
    code, _, err = run("topics", "alter", topic, "--partitions", "1")

    assert code == ExitCode.FAILED
    assert "INVALID_PARTITIONS" in err


def test_topics_are_made_and_deleted_as_json(run: Run) -> None:
    made = as_json(run("topics", "create", "as-json", "--json"))
    assert made == [{"topic": "as-json", "created": True}]
    gone = as_json(run("topics", "delete", "as-json", "never-was", "--if-exists", "--json"))
    assert gone == [
        {"topic": "as-json", "deleted": True},
        {"topic": "never-was", "deleted": False},
    ]
    assert "never-was: was not there" in run("topics", "delete", "never-was", "--if-exists")[1]


def test_the_shell_completes_names_of_topics(
    run: Run, topic: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_MILLSTREAM_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"millstream consume {topic[:-2]}")
    monkeypatch.setenv("COMP_CWORD", "2")

    with pytest.raises(SystemExit):
        main([])

    assert capfd.readouterr().out.split() == [topic]


def test_a_file_that_is_not_there_is_named(run: Run, topic: str) -> None:
    code, _, err = run("produce", topic, "/no/such/file")

    assert code == ExitCode.FAILED
    assert "/no/such/file" in err


def test_whole_files_become_records(run: Run, topic: str, tmp_path: Path) -> None:
    files = [tmp_path / "one", tmp_path / "two"]
    for file in files:
        file.write_bytes(b"several\nlines\n")

    assert run("produce", topic, *map(str, files), "--whole", "-k", "key")[0] == ExitCode.OK

    assert sorted(ends_of(run, topic).values()) == [0, 2]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("topics", "describe", "nowhere"), ExitCode.FAILED, "nowhere"),
        (("topics", "delete", "nowhere"), ExitCode.FAILED, "nowhere"),
        (("topics", "create", "bad name"), ExitCode.FAILED, "bad name"),
        (("topics", "create", "t", "--config", "retention.sm=1"), ExitCode.FAILED, "retention.ms"),
        (("topics", "create"), ExitCode.USAGE, "--help"),
        (("topics", "alter", "t"), ExitCode.USAGE, ""),
        (("produce", "t", "--compression", "rar"), ExitCode.USAGE, "rar"),
        (("produce", "nowhere"), ExitCode.FAILED, "topics create nowhere"),
        (("offsets", "nowhere"), ExitCode.FAILED, "nowhere"),
        (("consume", "nowhere"), ExitCode.FAILED, "nowhere"),
        (("consume", "t", "--from-end"), ExitCode.USAGE, "--follow"),
        (("consume", "t", "-f", "--from-end", "-o", "1"), ExitCode.USAGE, "--from-beginning"),
        (("consume", "t", "--json", "--format", "%s"), ExitCode.USAGE, "one of --json"),
        (("consume", "t", "--format", "%q"), ExitCode.USAGE, "%q means nothing"),
        (("consume", "t", "--count", "0"), ExitCode.USAGE, "--count"),
        (("consume", "t", "--offset", "x"), ExitCode.USAGE, "--offset"),
        (("consume", "t", "--isolation", "none"), ExitCode.USAGE, "read_committed"),
        (("consume", "t", "--encoding", "rot13"), ExitCode.USAGE, "base64"),
        (("configs", "describe"), ExitCode.USAGE, "--topic"),
        (("configs", "describe", "--broker", "99", "--all"), ExitCode.FAILED, "no broker 99"),
        (("configs", "alter", "--topic", "t"), ExitCode.USAGE, "KEY=VALUE"),
        (("configs", "alter", "--cluster", "log.retention"), ExitCode.USAGE, "key=value"),
        (("topics", "create", "t", "-c", "cleanup.policy+=x"), ExitCode.USAGE, "key=value"),
        (("produce", "t", "--key", "k", "-K", ":"), ExitCode.USAGE, "either --key"),
        (("produce", "t", "-K", ""), ExitCode.USAGE, "is empty"),
        (("produce", "t", "-H", "x"), ExitCode.USAGE, "name=value"),
        (("topics", "list", "-b", "a:b"), ExitCode.USAGE, "host:port"),
        (("nonsense",), ExitCode.USAGE, "nonsense"),
    ],
)
def test_wrong_input_gets_one_line_that_says_what(
    run: Run, arguments: tuple[str, ...], code: ExitCode, says: str
) -> None:
    found, _, err = run(*arguments)

    assert found == code
    assert says in err
    assert err.count("\n") == 1


def test_a_broker_that_is_not_there_has_an_exit_code_of_its_own(run: Run) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"

        code, _, err = run("topics", "list", "--bootstrap-server", address, "--timeout", "1")

    assert code == ExitCode.UNREACHABLE
    assert address in err


@pytest.mark.parametrize("command", ["topics", "configs", "produce", "consume", "offsets"])
def test_every_command_explains_itself(run: Run, command: str) -> None:
    code, out, _ = run(command, "--help")

    assert code == ExitCode.OK
    assert "Usage" in out


def test_offsets_are_found_by_time(run: Run, topic: str) -> None:
    assert run("produce", topic, "-p", "0", stdin="x\ny\n")[0] == ExitCode.OK

    [row] = as_json(run("offsets", topic, "-p", "0", "--time", "1h", "--json"))
    assert (row["partition"], row["offset"]) == (0, 0)
    assert "LATEST" in run("offsets", topic)[1]
    assert run("offsets", topic, "-p", "9")[0] == ExitCode.FAILED


def test_the_oldest_records_are_deleted(run: Run, topic: str) -> None:
    for _ in range(3):
        assert run("produce", topic, "--partition", "0", stdin="one\ntwo\n")[0] == ExitCode.OK

    found = as_json(run("topics", "delete-records", topic, "-p", "0", "--before", "2", "--json"))
    assert found == [{"partition": 0, "earliest": 2}]
    assert run("consume", topic)[1].split() == ["one", "two"] * 2
    assert as_json(run("topics", "delete-records", topic, "--all", "--json")) == [
        {"partition": 0, "earliest": 6},
        {"partition": 1, "earliest": 0},
    ]
    code, _, err = run("topics", "delete-records", topic)
    assert (code, "give one of --before" in err) == (ExitCode.USAGE, True)


def test_records_before_a_time_are_deleted(run: Run, topic: str) -> None:
    run("produce", topic, "--partition", "0", stdin="new\n")
    rows = as_json(run("topics", "delete-records", topic, "--before-time", "1h", "--json"))
    assert [row["earliest"] for row in rows] == [0, 0]


@pytest.mark.parametrize(
    ("answer", "is_deleted"), [("n\n", False), ("y\n", True)], ids=["no", "yes"]
)
def test_a_terminal_is_asked_before_something_is_lost(
    run: Run, topic: str, answer: str, is_deleted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("millstream.cli.output.sys", SimpleNamespace(stdin=Terminal(answer)))

    code = main(["topics", "delete", topic, "--json"])

    assert (code == ExitCode.OK) is is_deleted
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("format_", "expected"),
    [
        ("csv", "partition,earliest,latest,count\n0,0,0,0\n1,0,0,0\n"),
        (
            "yaml",
            "- partition: 0\n  earliest: 0\n  latest: 0\n  count: 0\n"
            "- partition: 1\n  earliest: 0\n  latest: 0\n  count: 0\n",
        ),
    ],
    ids=["csv", "yaml"],
)
def test_documents_are_printed_in_other_formats(
    run: Run, topic: str, format_: str, expected: str
) -> None:
    code, out, err = run("offsets", topic, "-o", format_)

    assert (code, out, err) == (ExitCode.OK, expected, "")
    json_again = as_json(run("offsets", topic, "--json"))
    assert [row["partition"] for row in json_again] == [0, 1]
    code, _, err = run("offsets", topic, "-o", "xml")
    assert (code, "must be json, yaml, csv" in err) == (ExitCode.USAGE, True)


def test_headers_may_be_an_object(run: Run, topic: str) -> None:
    record = {"value": "x", "headers": {"trace": "1", "empty": None}}

    assert run("produce", topic, "--input", "json", stdin=json.dumps(record) + "\n")[0] == 0

    (line,) = run("consume", topic, "--json")[1].splitlines()
    assert json.loads(line)["headers"] == [["trace", "1"], ["empty", None]]
