"""`millstream groups reset-offsets` and `delete-offsets`: what is planned, done and refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.cli.faults import ExitCode
from millstream.protocol.messages import OffsetCommitRequest
from tests.unit.cli.fake_cluster import TOPIC
from tests.unit.cli.fake_groups import FakeGroup, FakeGroups
from tests.unit.cli.running import as_json

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.running import Run


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-t", TOPIC, "--to-earliest"], {0: 0, 1: 0, 2: 0}),
        (["-t", TOPIC, "--to-latest"], {0: 10, 1: 10, 2: 0}),
        (["-t", f"{TOPIC}:0,2", "--to-offset", "3"], {0: 3, 2: 0}),
        (["-t", TOPIC, "--to-time", "1970-01-01T00:00:02Z"], {0: 5, 1: 5, 2: 0}),
        (["--all-topics", "--by-duration", "PT1S"], {0: 10, 1: 10}),
        (["--all-topics", "--shift", "-6"], {0: 0, 1: 4}),
        (["--all-topics", "--shift", "3"], {0: 7, 1: 10}),
        (["--all-topics", "--to-current"], {0: 4, 1: 10}),
    ],
)
@pytest.mark.usefixtures("readers")
def test_new_offsets_are_found_and_kept_within_the_log(
    groups: Run, arguments: list[str], expected: dict[int, int]
) -> None:
    planned = as_json(groups("reset-offsets", "readers", *arguments, "--json"))

    assert {row["partition"]: row["new"] for row in planned["partitions"]} == expected
    assert not planned["executed"]


def test_a_dry_run_changes_nothing_and_execute_does(
    groups: Run, cluster: FakeGroups, readers: FakeGroup
) -> None:
    arguments = ("reset-offsets", "readers", "-t", TOPIC, "--to-offset", "7")

    code, out, _ = groups(*arguments)
    assert (code, readers.offsets) == (ExitCode.OK, {0: 4, 1: 10})
    assert "nothing was changed; --execute does it" in out
    assert "7 is beyond the log's end 0" in out
    assert not any(isinstance(each, OffsetCommitRequest) for each in cluster.requests)

    code, out, _ = groups(*arguments, "--execute")
    assert (code, readers.offsets) == (ExitCode.OK, {0: 7, 1: 7, 2: 0})
    assert "set the offsets of 3 partitions" in out


def test_an_offset_before_the_log_is_its_start(
    groups: Run, cluster: FakeGroups, readers: FakeGroup
) -> None:
    cluster.starts[0] = 5

    [row] = as_json(
        groups("reset-offsets", "readers", "-t", f"{TOPIC}:0", "--to-current", "--json")
    )["partitions"]
    assert (row["old"], row["new"], row["change"]) == (4, 5, 1)
    assert row["note"] == "4 is before the log's start 5"


def test_exported_offsets_are_read_again(groups: Run, readers: FakeGroup, tmp_path: Path) -> None:
    code, out, err = groups("reset-offsets", "readers", "--all-topics", "--to-current", "--export")
    assert (code, out) == (ExitCode.OK, f"{TOPIC},0,4\n{TOPIC},1,10\n")
    assert "nothing was changed" in err
    file = tmp_path / "offsets.csv"
    file.write_text(f"topic,partition,offset\n\n{out}readers,{TOPIC},2,0\nothers,{TOPIC},0,9\n")
    readers.offsets = {0: 0}

    assert groups("reset-offsets", "readers", "--from-file", str(file), "--execute")[0] == 0
    assert readers.offsets == {0: 4, 1: 10, 2: 0}


def test_a_partition_that_a_file_leaves_out_stays(
    groups: Run, readers: FakeGroup, tmp_path: Path
) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text(f"{TOPIC},0,1\n")

    out = groups("reset-offsets", "readers", "-t", TOPIC, "--from-file", str(file), "--execute")[1]

    assert "is not in the file" in out
    assert readers.offsets == {0: 1, 1: 10}


def test_a_new_group_starts_where_it_is_told_to(groups: Run, cluster: FakeGroups) -> None:
    arguments = ("reset-offsets", "brand-new", "-t", TOPIC, "--to-latest")

    assert "there is no group 'brand-new' yet, --execute makes it" in groups(*arguments)[2]
    assert groups(*arguments, "--execute")[0] == ExitCode.OK
    assert cluster.groups["brand-new"].offsets == {0: 10, 1: 10, 2: 0}


def test_a_group_that_is_read_is_planned_but_not_moved(groups: Run, busy: FakeGroup) -> None:
    code, _, err = groups("reset-offsets", "busy", "-t", TOPIC, "--to-latest")
    assert code == ExitCode.OK
    assert "until then --execute refuses" in err

    code, _, err = groups("reset-offsets", "busy", "-t", TOPIC, "--to-latest", "--execute")
    assert code == ExitCode.FAILED
    assert "'busy' has 2 members (Reconciling); stop its consumers first" in err
    assert busy.offsets == {0: 4}


def test_a_member_that_joins_in_between_is_noticed(groups: Run, readers: FakeGroup) -> None:
    readers.is_reading = True

    code, _, err = groups("reset-offsets", "readers", "-t", TOPIC, "--to-latest", "--execute")

    assert code == ExitCode.FAILED
    assert "'readers' has members; stop its consumers first" in err


def test_offsets_are_forgotten(groups: Run, readers: FakeGroup) -> None:
    assert groups("delete-offsets", "readers", "-t", f"{TOPIC}:0,2")[1] == (
        "readers: forgot the offsets of 1 partition\n"
    )
    assert readers.offsets == {1: 10}
    rows = as_json(groups("delete-offsets", "readers", "-t", TOPIC, "--json"))
    assert [row["deleted"] for row in rows] == [False, True, False]


@pytest.mark.usefixtures("busy")
def test_offsets_of_a_topic_that_is_read_stay(groups: Run) -> None:
    code, _, err = groups("delete-offsets", "busy", "-t", TOPIC)

    assert code == ExitCode.FAILED
    assert f"members of 'busy' read '{TOPIC}' now" in err


@pytest.mark.parametrize(
    "content",
    [b"", b"readers,orders\n", b"orders,x,1\n", b"others,orders,0,1\n", b"\xff\xfe"],
)
def test_a_file_without_offsets_is_refused(groups: Run, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "offsets.csv"
    file.write_bytes(content)

    code, _, err = groups("reset-offsets", "readers", "--from-file", str(file))

    assert code == ExitCode.FAILED
    assert "write topic,partition,offset" in err


def test_a_partition_that_is_gone_has_no_end(groups: Run, cluster: FakeGroups) -> None:
    cluster.groups["readers"] = FakeGroup(offsets={7: 4})

    [row] = as_json(groups("describe", "readers", "--json"))[0]["partitions"]
    assert (row["end"], row["lag"]) == (None, None)
    err = groups("reset-offsets", "readers", "--all-topics", "--to-latest")[2]
    assert f"{TOPIC}-7: has no leader, or is gone" in err


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ("delete-offsets readers", ExitCode.USAGE, "--topic TOPIC"),
        (f"reset-offsets readers -t {TOPIC}", ExitCode.USAGE, "one of --to-earliest, "),
        (f"reset-offsets readers -t {TOPIC} --to-latest --shift 1", ExitCode.USAGE, "say where to"),
        ("reset-offsets readers --to-latest", ExitCode.USAGE, "say of what"),
        (
            f"reset-offsets readers --to-latest -t {TOPIC} --all-topics",
            ExitCode.USAGE,
            "either --topic or --all-topics",
        ),
        (
            f"reset-offsets readers --to-offset -1 -t {TOPIC}",
            ExitCode.USAGE,
            "--shift takes a negative number",
        ),
        (f"reset-offsets readers --to-latest -t {TOPIC}:x", ExitCode.USAGE, "TOPIC:0,1"),
        (f"reset-offsets readers --to-latest -t {TOPIC}:3", ExitCode.FAILED, "has no partition 3"),
        (
            f"reset-offsets readers --to-latest -t {TOPIC} --export --json",
            ExitCode.USAGE,
            "either --export or --json",
        ),
        (f"reset-offsets readers --shift 1 -t {TOPIC}:2", ExitCode.FAILED, "nothing is committed"),
        (
            "reset-offsets fresh --to-latest --all-topics",
            ExitCode.FAILED,
            "'fresh' has no offsets yet",
        ),
        (
            "reset-offsets nobody --to-latest --all-topics",
            ExitCode.FAILED,
            "there is no group 'nobody'",
        ),
        (f"reset-offsets shared --to-latest -t {TOPIC}", ExitCode.FAILED, "is a share group"),
    ],
)
@pytest.mark.usefixtures("readers")
def test_wrong_input_gets_one_line_that_says_what(
    groups: Run, cluster: FakeGroups, arguments: str, code: ExitCode, says: str
) -> None:
    cluster.groups |= {
        "shared": FakeGroup("share"),
        "topology": FakeGroup("Streams"),
        "fresh": FakeGroup(),
    }

    found, _, err = groups(*arguments.split())

    assert found == code, err
    assert says in err
    assert err.count("\n") == 1
