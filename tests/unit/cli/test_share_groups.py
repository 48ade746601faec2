"""`millstream share-groups` on a cluster in memory: what is shown, planned, done and refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.cli import share_groups as module
from millstream.cli.app import run
from millstream.cli.faults import ExitCode
from millstream.errors import GroupAuthorizationFailed
from tests.unit.cli.fake_cluster import TOPIC
from tests.unit.cli.fake_groups import FakeGroup
from tests.unit.cli.fake_share_groups import FakeShareGroups, share_member
from tests.unit.cli.running import as_json

if TYPE_CHECKING:
    from tests.unit.cli.running import Run


@pytest.fixture
def workers() -> FakeGroup:
    """A share group without members that has begun one of two partitions."""
    return FakeGroup("share", offsets={0: 4, 1: -1}, protocol_type="share")


@pytest.fixture
def cluster(workers: FakeGroup, monkeypatch: pytest.MonkeyPatch) -> FakeShareGroups:
    """Two partitions of ten records, a share group, and one of consumers."""
    cluster = FakeShareGroups(partitions=2)
    for partition in (0, 1):
        cluster.append(partition, *[b"x"] * 10)
    cluster.groups = {"workers": workers, "readers": FakeGroup()}
    monkeypatch.setattr(module, "open_session", lambda *_: cluster.session())
    return cluster


@pytest.fixture
def call(cluster: FakeShareGroups, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command of the family; its exit code, stdout and stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(["share-groups", *arguments])
        printed = capfd.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.fixture
def busy(cluster: FakeShareGroups, workers: FakeGroup) -> FakeGroup:
    """The same share group with two members that take from the same partition."""
    workers.state, workers.is_reading = "Stable", True
    cluster.members = [share_member("m1", 0), share_member("m2", 0, 1)]
    return workers


def test_only_share_groups_are_listed(call: Run, cluster: FakeShareGroups) -> None:
    assert [row["group"] for row in as_json(call("list", "--json"))] == ["workers"]
    assert call("list", "--state", "stable")[1] == "no share group is like that\n"
    del cluster.groups["workers"]
    assert call("list")[1] == "there are no share groups\n"


def test_a_share_group_shows_where_it_is_and_what_is_left(call: Run) -> None:
    [found] = as_json(call("describe", "workers", "--json"))
    assert (found["type"], found["state"], found["assignor"]) == ("share", "Empty", "simple")
    assert found["lag"] == 6
    assert found["partitions"] == [
        {"topic": TOPIC, "partition": 0, "start": 4, "end": 10, "lag": 6},
        {"topic": TOPIC, "partition": 1, "start": None, "end": 10, "lag": None},
    ]
    assert "START" in call("describe", "--all")[1]


@pytest.mark.usefixtures("busy")
def test_members_may_have_the_same_partition(call: Run) -> None:
    rows = as_json(call("members", "workers", "--json"))
    assert [row["assigned"] for row in rows] == [{TOPIC: [0]}, {TOPIC: [0, 1]}]
    assert f"{TOPIC}:0-1" in call("members", "workers")[1]


def test_a_dry_run_changes_nothing_and_execute_does(call: Run, workers: FakeGroup) -> None:
    arguments = ("reset-offsets", "workers", "--all-topics", "--to-earliest")

    code, out, err = call(*arguments)
    assert (code, err, workers.offsets) == (ExitCode.OK, "", {0: 4, 1: -1})
    assert "--execute does it" in out

    assert call(*arguments, "--execute")[0] == ExitCode.OK
    assert workers.offsets == {0: 0, 1: 0}


def test_only_what_has_begun_can_be_shifted(call: Run) -> None:
    shifted = as_json(call("reset-offsets", "workers", "--all-topics", "--shift", "2", "--json"))

    assert [(row["new"], row["note"]) for row in shifted["partitions"]] == [
        (6, None),
        (None, "nothing is committed"),
    ]


def test_a_share_group_that_is_read_is_planned_but_not_moved(call: Run, busy: FakeGroup) -> None:
    arguments = ("reset-offsets", "workers", "-t", TOPIC, "--to-latest")

    assert "until then --execute refuses" in call(*arguments)[2]
    code, _, err = call(*arguments, "--execute")
    assert (code, busy.offsets) == (ExitCode.FAILED, {0: 4, 1: -1})
    assert "'workers' has 2 members (Stable)" in err


def test_a_member_that_joins_in_between_is_noticed(call: Run, workers: FakeGroup) -> None:
    workers.is_reading = True

    for arguments in (
        ("reset-offsets", "workers", "-t", TOPIC, "--to-latest", "--execute"),
        ("delete-offsets", "workers", "-t", TOPIC),
        ("delete", "workers"),
    ):
        code, _, err = call(*arguments)
        assert code == ExitCode.FAILED
        assert "'workers' has members; stop its consumers first" in err


def test_share_groups_are_deleted(call: Run, cluster: FakeShareGroups) -> None:
    assert call("delete", "workers", "gone", "--if-exists")[1] == (
        "workers: deleted\ngone: was not there\n"
    )
    assert list(cluster.groups) == ["readers"]


def test_offsets_in_a_topic_are_forgotten(call: Run, workers: FakeGroup) -> None:
    assert call("delete-offsets", "workers", "-t", TOPIC)[1] == (
        f"workers: forgot where it was in {TOPIC}\n"
    )
    assert workers.offsets == {}
    assert (
        f"'workers' has no offsets in '{TOPIC}'"
        in call("delete-offsets", "workers", "-t", TOPIC, "--json")[2]
    )


@pytest.mark.parametrize("command", ["describe workers", "reset-offsets workers -t orders:0"])
def test_what_the_broker_refuses_is_told(call: Run, cluster: FakeShareGroups, command: str) -> None:
    cluster.partition_error_code = GroupAuthorizationFailed.code

    code, _, err = call(*command.split(), *(["--to-latest"] if "reset" in command else []))

    assert code == ExitCode.FAILED
    assert "GROUP_AUTHORIZATION_FAILED" in err


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ("describe", ExitCode.USAGE, "GROUP…, or --all"),
        ("describe wokers", ExitCode.FAILED, "did you mean 'workers'?"),
        ("describe xyzzy", ExitCode.FAILED, "`millstream share-groups list` shows all"),
        ("members readers", ExitCode.FAILED, "is a classic group; see `millstream groups --help`"),
        ("delete readers", ExitCode.FAILED, "is a classic group"),
        ("delete-offsets workers", ExitCode.USAGE, "--topic TOPIC"),
        ("reset-offsets workers --to-latest", ExitCode.USAGE, "say of what"),
        ("reset-offsets workers -t orders", ExitCode.USAGE, "say where to"),
        ("reset-offsets nobody -t orders --to-latest", ExitCode.FAILED, "no share group 'nobody'"),
    ],
)
def test_wrong_input_gets_one_line_that_says_what(
    call: Run, arguments: str, code: ExitCode, says: str
) -> None:
    found, _, err = call(*arguments.split())

    assert found == code, err
    assert says in err
    assert err.count("\n") == 1
