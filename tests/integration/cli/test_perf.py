"""`millstream perf` against an embedded broker."""

from __future__ import annotations

import json
import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from millstream.cli.faults import ExitCode
from millstream.cli.main import main
from millstream.cli.perf_run import Interrupt, first_interrupt
from millstream.errors import TopicAuthorizationFailed
from millstream.protocol.api import ApiKey
from millstream.testing import EmbeddedBroker
from tests.integration.cli.commands import own_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Run = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def broker(shared: EmbeddedBroker) -> Iterator[EmbeddedBroker]:
    yield shared
    shared.reset()


@pytest.fixture
def run(
    broker: EmbeddedBroker,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """Run `millstream perf …`; its exit code, stdout and stderr."""
    monkeypatch.setenv("MILLSTREAM_BOOTSTRAP_SERVER", broker.bootstrap_servers)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(("perf", *arguments))
        printed = capfd.readouterr()
        return code, printed.out, own_words(printed.err)

    return run


def facts(result: tuple[int, str, str]) -> dict[str, Any]:
    code, out, err = result
    assert (code, err) == (ExitCode.OK, "")
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.mark.parametrize("acks", ["all", "1", "0"])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_what_was_written_is_read(run: Run, acks: str, codec: str) -> None:
    arguments = ("-n", "5000", "-s", "50", "--partitions", "3", "--acks", acks, "-z", codec)

    written = facts(run("produce", "load", *arguments, "--json"))

    assert (written["records"], written["bytes"]) == (5000, 250_000)
    assert (written["acks"], written["compression"], written["partitions"]) == (acks, codec, 3)
    assert (written["latency_ms"] is None) is (acks == "0")
    again = ("consume", "load", "--connections", "2", "--json")
    while (read := facts(run(*again)))["records"] != 5000:
        assert acks == "0"  # nobody says then when they are there
    assert (read["records"], read["bytes"]) == (5000, 250_000)
    assert (read["connections"], read["latency_ms"]) == (2, None)


def test_the_summary_is_for_people(run: Run, broker: EmbeddedBroker) -> None:
    broker.create_topic("load")

    code, out, err = run("produce", "load", "-n", "1000", "--connections", "2", "--progress")

    assert code == ExitCode.OK
    assert "1,000 in " in out
    assert "p99.9" in out
    assert "acks all, compression none, partitions 1, connections 2, in flight 5" in out
    assert "starting" in err
    columns = run("consume", "load", "--columns")[1]
    assert "1,000 in " in columns
    assert "MB/s" not in columns


def test_records_come_at_the_rate_asked_for(run: Run) -> None:
    arguments = ("--partitions", "1", "-n", "200", "--throughput", "2000", "--json")

    written = facts(run("produce", "load", *arguments))

    assert written["records"] == 200
    assert written["seconds"] >= 0.1


def test_a_duration_ends_it(run: Run) -> None:
    written = facts(run("produce", "load", "--partitions", "1", "-d", "0.2", "--json"))

    assert written["records"] > 0
    assert written["seconds"] >= 0.2


def test_lines_of_a_file_are_the_values(run: Run, tmp_path: Path) -> None:
    (tmp_path / "values").write_text("one\nthree\n")
    arguments = ("--payload", str(tmp_path / "values"), "-n", "10", "--partitions", "1", "--json")

    assert facts(run("produce", "load", *arguments))["bytes"] == 5 * len("onethree")


def test_only_the_partitions_asked_for_are_used(run: Run, broker: EmbeddedBroker) -> None:
    broker.create_topic("load", partitions=3)

    facts(run("produce", "load", "-n", "1000", "-p", "1", "--json"))

    assert facts(run("consume", "load", "-p", "1", "--json"))["records"] == 1000
    assert facts(run("consume", "load", "-p", "0", "-p", "2", "--json"))["records"] == 0


def test_reading_stops_at_the_number_of_records(run: Run) -> None:
    facts(run("produce", "load", "-n", "20000", "--partitions", "1", "--json"))

    read = facts(run("consume", "load", "-n", "1", "--partition-bytes", "10000", "--json"))

    assert 1 <= read["records"] < 20_000


def test_following_waits_for_what_is_to_come(run: Run, broker: EmbeddedBroker) -> None:
    broker.create_topic("load")
    facts(run("produce", "load", "-n", "10", "--json"))

    read = facts(run("consume", "load", "--follow", "-d", "0.2", "--max-wait", "50", "--json"))

    assert read["records"] == 0
    assert read["seconds"] >= 0.2


@pytest.mark.parametrize("command", [("produce", "--throughput", "1000"), ("consume", "--follow")])
def test_an_interrupt_ends_with_the_summary(
    run: Run,
    broker: EmbeddedBroker,
    command: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker.create_topic("load")
    name, *options = command

    @contextmanager
    def interrupted_once_begun() -> Iterator[Interrupt]:
        with first_interrupt() as interrupt:
            os.kill(os.getpid(), signal.SIGINT)
            yield interrupt

    monkeypatch.setattr("millstream.cli.perf_run.first_interrupt", interrupted_once_begun)

    code, out, _ = run(name, "load", *options, "-d", "60", "--json")

    assert code == ExitCode.INTERRUPTED
    assert json.loads(out)["interrupted"] is True


def test_a_refusal_ends_with_the_summary_and_the_reason(run: Run, broker: EmbeddedBroker) -> None:
    broker.create_topic("load")
    broker.faults.fail(ApiKey.PRODUCE, TopicAuthorizationFailed)

    code, out, err = run("produce", "load", "-n", "1000")

    assert code == ExitCode.FAILED
    assert "0 in " in out
    assert "(after 0 records)" in err


def test_a_batch_that_is_too_large_says_what_to_do(run: Run, broker: EmbeddedBroker) -> None:
    broker.create_topic("load")

    code, _, err = run("produce", "load", "-n", "3", "-s", "2000000")

    assert code == ExitCode.FAILED
    assert "--batch-size" in err


def test_a_broker_that_does_not_answer_is_given_up(run: Run, broker: EmbeddedBroker) -> None:
    broker.create_topic("load")
    broker.faults.delay(ApiKey.PRODUCE, 60_000)

    code, _, err = run("produce", "load", "-n", "3", "--timeout", "0.3")

    assert code == ExitCode.FAILED
    assert "0.3" in err


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("produce", "nowhere"), ExitCode.FAILED, "topics create nowhere"),
        (("produce", "a b", "--partitions", "1"), ExitCode.FAILED, "INVALID_TOPIC"),
        (("consume", "nowhere"), ExitCode.FAILED, "no topic"),
        (("consume", "x", "--max-wait", "5000", "--timeout", "5"), ExitCode.USAGE, "--max-wait"),
        (("produce", "x", "--size", "0"), ExitCode.USAGE, "--size"),
        (("produce", "x", "--acks", "2"), ExitCode.USAGE, "--acks"),
    ],
)
def test_wrong_input_is_answered_in_one_line(
    run: Run, arguments: tuple[str, ...], code: ExitCode, says: str
) -> None:
    found, out, err = run(*arguments)

    assert (found, out) == (code, "")
    assert says in err
    assert err.count("\n") == 1
