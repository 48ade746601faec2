"""`millstream transactions` on a cluster in memory: what is shown, what hangs, what is ended."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest

from millstream.cli import transactions as module
from millstream.cli.app import run
from millstream.cli.faults import ExitCode
from millstream.errors import InvalidProducerEpoch
from millstream.protocol.messages import ListTransactionsRequest, WriteTxnMarkersRequest
from millstream.protocol.messages.describe_producers import ProducerState
from tests.unit.cli.fake_cluster import TOPIC
from tests.unit.cli.fake_transactions import FakeTransaction, FakeTransactions
from tests.unit.cli.running import as_json

if TYPE_CHECKING:
    from tests.unit.cli.running import Run

HANGING = 7
HEALTHY = 8
IDLE = 9


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeTransactions:
    """Two partitions: in the first a transaction hangs, and another goes on in both."""
    cluster = FakeTransactions(partitions=2)
    healthy = ProducerState(
        producer_id=HEALTHY, producer_epoch=2, last_timestamp=2000, current_txn_start_offset=20
    )
    cluster.producers[0] = [
        ProducerState(
            producer_id=HANGING,
            producer_epoch=3,
            last_sequence=4,
            last_timestamp=1000,
            coordinator_epoch=5,
            current_txn_start_offset=10,
        ),
        healthy,
    ]
    cluster.producers[1] = [healthy, ProducerState(producer_id=IDLE, producer_epoch=0)]
    cluster.transactions = {
        "billing-2": FakeTransaction(HEALTHY, epoch=2, partitions=[0, 1]),
        "billing-1": FakeTransaction(IDLE, "CompleteCommit"),
    }
    monkeypatch.setattr(module, "open_session", lambda *_: cluster.session())
    return cluster


@pytest.fixture
def call(
    cluster: FakeTransactions,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """Run a command of the family; its exit code, stdout and stderr."""

    def call(*arguments: str, answer: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        code = run(["transactions", *arguments])
        printed = capfd.readouterr()
        return code, printed.out, printed.err

    return call


def markers(cluster: FakeTransactions) -> list[Any]:
    sent = [each for each in cluster.requests if isinstance(each, WriteTxnMarkersRequest)]
    return [marker for each in sent for marker in each.markers]


def test_transactions_are_listed_by_name_and_state(call: Run) -> None:
    names = [row["transactional_id"] for row in as_json(call("list", "--json"))]
    assert names == ["billing-1", "billing-2"]
    assert "billing-1" not in call("list", "--state", "ongoing")[1]
    assert call("list", "--state", "dead")[1] == "no transaction is like that\n"


def test_age_and_pattern_are_for_the_broker_and_only_what_is_open_ages(
    call: Run, cluster: FakeTransactions
) -> None:
    call("list", "--older-than", "5m", "--pattern", "b.*")

    [request] = [each for each in cluster.requests if isinstance(each, ListTransactionsRequest)]
    assert (request.duration_filter, request.transactional_id_pattern) == (300_000, "b.*")
    assert "CompleteCommit" not in request.state_filters
    assert "Ongoing" in request.state_filters


def test_no_transactions_are_a_sentence(call: Run, cluster: FakeTransactions) -> None:
    cluster.transactions.clear()

    assert call("list")[1] == "there are none\n"
    assert as_json(call("list", "--json")) == []


def test_a_transaction_is_described(call: Run) -> None:
    ended, going = as_json(call("describe", "billing-1", "billing-2", "--json"))
    assert (going["state"], going["producer_id"], going["producer_epoch"]) == (
        "Ongoing",
        HEALTHY,
        2,
    )
    assert (going["timeout_ms"], going["partitions"]) == (60_000, {TOPIC: [0, 1]})
    assert going["start_time"] == "1970-01-01T00:00:01.000Z"
    assert going["open_ms"] > 0
    assert ended["open_ms"] is None

    text = call("describe", "billing-1", "billing-2")[1]
    assert f"partitions:       {TOPIC}:0-1" in text
    assert "timeout:          1m" in text
    assert text.count("open for:") == text.count("\n\n") == 1


def test_producers_are_shown_by_partition(call: Run) -> None:
    rows = as_json(call("producers", TOPIC, "--json"))
    assert [(row["partition"], row["producer_id"]) for row in rows] == [
        (0, HANGING),
        (0, HEALTHY),
        (1, HEALTHY),
        (1, IDLE),
    ]
    assert rows[0]["last_time"] == "1970-01-01T00:00:01.000Z"
    assert rows[3]["start_offset"] is None
    assert len(as_json(call("producers", TOPIC, "1", "--open", "--json"))) == 1
    assert "OPEN SINCE OFFSET" in call("producers", TOPIC, "1")[1]


def test_no_producers_are_a_sentence(call: Run, cluster: FakeTransactions) -> None:
    cluster.producers = [[], []]

    assert call("producers", TOPIC)[1] == f"{TOPIC}: no such producers\n"
    assert call("producers", TOPIC, "--open")[1] == f"{TOPIC}: no open transactions\n"


@pytest.mark.parametrize("where", [[], ["--topic", TOPIC], ["-t", f"{TOPIC}:0"], ["--broker", "1"]])
def test_a_transaction_without_a_coordinator_hangs(call: Run, where: list[str]) -> None:
    [row] = as_json(call("find-hanging", *where, "--json"))

    assert (row["topic"], row["partition"], row["producer_id"]) == (TOPIC, 0, HANGING)
    assert row["reason"] == "no coordinator knows the producer"
    assert row["idle_ms"] > 0
    text = call("find-hanging", *where)[1]
    assert f"millstream transactions abort {TOPIC} 0 --start-offset 10" in text


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        (FakeTransaction(HANGING, epoch=3, partitions=[0]), None),
        (FakeTransaction(HANGING, epoch=4, partitions=[0]), None),
        (
            FakeTransaction(HANGING, "CompleteAbort", epoch=3),
            "its coordinator has it as CompleteAbort, without this partition",
        ),
        (FakeTransaction(HANGING, epoch=2, partitions=[0]), "its coordinator is at epoch 2"),
    ],
)
def test_what_hangs_is_what_the_coordinator_will_not_end(
    call: Run, cluster: FakeTransactions, known: FakeTransaction, reason: str | None
) -> None:
    cluster.transactions["known"] = known

    found = as_json(call("find-hanging", "--json"))

    assert [row["reason"] for row in found] == ([] if reason is None else [reason])
    assert all(row["transactional_id"] == "known" for row in found)


def test_what_is_younger_than_a_transaction_may_be_does_not_hang(
    call: Run, cluster: FakeTransactions
) -> None:
    cluster.producers[0][0].last_timestamp = 1 << 50

    assert call("find-hanging")[1] == "no transaction hangs\n"


def test_what_ends_while_it_is_looked_at_does_not_hang(
    call: Run, cluster: FakeTransactions
) -> None:
    cluster.ends_when_asked = True

    assert as_json(call("find-hanging", "--json")) == []


def test_partitions_of_another_broker_are_not_searched(
    call: Run, cluster: FakeTransactions
) -> None:
    code, _, err = call("find-hanging", "--broker", "2")

    assert code == ExitCode.FAILED
    assert "there is no broker 2; there are 1" in err


@pytest.mark.parametrize("which", [("--start-offset", "10"), ("--producer-id", str(HANGING))])
def test_a_hanging_transaction_is_aborted_after_a_question(
    call: Run, cluster: FakeTransactions, which: tuple[str, str]
) -> None:
    code, out, err = call("abort", TOPIC, "0", *which, answer="y\n")

    assert code == ExitCode.OK, err
    assert "producer 7, epoch 3, from offset 10 on" in err
    assert "no coordinator knows the producer\nAbort it? [y/N]" in err
    assert out == f"{TOPIC}-0: aborted the transaction of producer 7 from offset 10 on\n"
    [marker] = markers(cluster)
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (HANGING, 3, 5)
    assert not marker.transaction_result


@pytest.mark.parametrize(
    ("answer", "code", "says"),
    [
        ("n\n", ExitCode.FAILED, "nothing was aborted"),
        ("\n", ExitCode.FAILED, "nothing was aborted"),
        ("", ExitCode.USAGE, "--yes does it without a question"),
    ],
)
def test_without_a_yes_nothing_is_aborted(
    call: Run, cluster: FakeTransactions, answer: str, code: ExitCode, says: str
) -> None:
    found, out, err = call("abort", TOPIC, "0", "--start-offset", "10", answer=answer)

    assert (found, out) == (code, "")
    assert says in err
    assert markers(cluster) == []


def test_a_transaction_that_goes_on_is_aborted_only_by_force(
    call: Run, cluster: FakeTransactions
) -> None:
    arguments = ("abort", TOPIC, "1", "--producer-id", str(HEALTHY), "--json")

    code, _, err = call(*arguments, "--yes")
    assert code == ExitCode.FAILED
    assert "it does not hang: its coordinator has 'billing-2' as Ongoing" in err
    assert markers(cluster) == []

    aborted = as_json(call(*arguments, "--yes", "--force"))
    assert (aborted["topic"], aborted["aborted"]) == (TOPIC, True)
    assert [each.coordinator_epoch for each in markers(cluster)] == [0]


def test_what_ends_before_the_answer_is_left_alone(call: Run, cluster: FakeTransactions) -> None:
    cluster.ends_when_asked = True

    code, _, err = call("abort", TOPIC, "0", "--start-offset", "10", "--yes")

    assert code == ExitCode.FAILED
    assert "has no open transaction at offset 10" in err
    assert markers(cluster) == []


def test_a_marker_that_is_refused_is_an_error(call: Run, cluster: FakeTransactions) -> None:
    cluster.marker_error_code = InvalidProducerEpoch.code

    code, _, err = call("abort", TOPIC, "0", "--start-offset", "10", "--yes")

    assert code == ExitCode.FAILED
    assert "INVALID_PRODUCER_EPOCH" in err


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["describe", "x", ""], ExitCode.USAGE, "an id is empty"),
        (["describe", "biling-2"], ExitCode.FAILED, "did you mean 'billing-2'?"),
        (["describe", "x"], ExitCode.FAILED, "`millstream transactions list` shows all"),
        (["list", "--state", "ongoin"], ExitCode.USAGE, "did you mean 'ongoing'?"),
        (["list", "--state", "x"], ExitCode.USAGE, "they are Empty, Ongoing"),
        (["list", "--older-than", "5"], ExitCode.USAGE, "'5' is not a length of time"),
        (["list", "--pattern", "("], ExitCode.USAGE, "'(' is no regular expression of RE2"),
        (["producers", TOPIC, "2"], ExitCode.FAILED, "has no partition 2"),
        (["abort", TOPIC, "0"], ExitCode.USAGE, "either --start-offset N or --producer-id ID"),
        (
            ["abort", TOPIC, "0", "--start-offset", "1", "--producer-id", "2"],
            ExitCode.USAGE,
            "either",
        ),
        (
            ["abort", TOPIC, "1", "--producer-id", str(IDLE)],
            ExitCode.FAILED,
            f"producers {TOPIC} 1 --open` shows all",
        ),
    ],
)
def test_wrong_input_gets_one_line_that_says_what(
    call: Run, arguments: list[str], code: ExitCode, says: str
) -> None:
    found, _, err = call(*arguments)

    assert found == code, err
    assert says in err
    assert err.count("\n") == 1
