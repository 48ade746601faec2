"""Every command once against an embedded broker, and what it says to wrong input."""

from __future__ import annotations

import json
import socket
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
