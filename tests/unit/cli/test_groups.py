"""`millstream groups`: what is listed, described, deleted and refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.cli.faults import ExitCode
from millstream.errors import (
    CoordinatorLoadInProgress,
    GroupAuthorizationFailed,
    GroupIdNotFound,
    NotCoordinator,
    UnsupportedVersion,
)
from millstream.protocol.messages import (
    DeleteGroupsRequest,
    FindCoordinatorRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from millstream.protocol.messages.consumer_group_describe import DescribedGroup
from millstream.protocol.messages.describe_groups import DescribedGroupMember
from tests.unit.cli.fake_cluster import TOPIC
from tests.unit.cli.fake_groups import FakeGroup, FakeGroups, classic_member
from tests.unit.cli.running import as_json

if TYPE_CHECKING:
    from millstream.protocol.message import Message
    from tests.unit.cli.running import Run


@pytest.mark.usefixtures("readers", "busy")
def test_groups_are_listed_and_filtered(groups: Run) -> None:
    assert [row["group"] for row in as_json(groups("list", "--json"))] == ["busy", "readers"]
    assert groups("list", "--state", "empty")[1].split()[4:] == ["readers", "classic", "Empty", "1"]
    assert [row["group"] for row in as_json(groups("list", "--type", "consumer", "--json"))] == [
        "busy"
    ]
    assert "no group is like that" in groups("list", "--type", "share")[1]


def test_no_groups_are_a_sentence_for_people_and_a_list_for_programs(groups: Run) -> None:
    assert groups("list")[1] == "there are no groups\n"
    assert as_json(groups("list", "--json")) == []
    assert as_json(groups("describe", "--all", "--json")) == []
    assert groups("describe", "--all")[:2] == (0, "there are no groups of consumers\n")


def test_groups_of_sparks_sink_are_shown_if_they_are_asked_for(
    groups: Run, cluster: FakeGroups
) -> None:
    marker = "sink.0f8fad5b-d9cb-469f-a165-70867728950e.3"
    cluster.groups |= {"readers": FakeGroup(), marker: FakeGroup()}

    assert [each["group"] for each in as_json(groups("list", "--json"))] == ["readers"]
    assert [each["group"] for each in as_json(groups("describe", "--all", "--json"))] == ["readers"]
    listed = as_json(groups("list", "--internal", "--json"))
    assert {each["group"] for each in listed} == {"readers", marker}
    cluster.groups[marker].state = "Stable"
    assert len(as_json(groups("list", "--json"))) == 2


@pytest.mark.parametrize(
    ("request_type", "arguments"),
    [
        (ListGroupsRequest, "list"),
        (FindCoordinatorRequest, "describe readers"),
        (OffsetFetchRequest, "describe readers"),
        (OffsetCommitRequest, "reset-offsets readers -t orders --to-latest --execute"),
        (OffsetDeleteRequest, "delete-offsets readers -t orders:0"),
        (DeleteGroupsRequest, "delete readers"),
    ],
)
@pytest.mark.usefixtures("readers")
def test_a_coordinator_that_is_still_loading_is_asked_again(
    groups: Run, cluster: FakeGroups, request_type: type[Message], arguments: str
) -> None:
    cluster.codes[request_type] = [CoordinatorLoadInProgress.code, NotCoordinator.code]

    code, out, err = groups(*arguments.split())

    assert (code, err) == (ExitCode.OK, "")
    assert "readers" in out
    assert cluster.codes[request_type] == []


@pytest.mark.parametrize(
    ("request_type", "arguments"),
    [
        (ListGroupsRequest, "list"),
        (FindCoordinatorRequest, "describe readers"),
        (OffsetFetchRequest, "describe readers"),
        (OffsetCommitRequest, "reset-offsets readers -t orders --to-latest --execute"),
        (OffsetDeleteRequest, "delete-offsets readers -t orders:0"),
        (DeleteGroupsRequest, "delete readers"),
    ],
)
@pytest.mark.usefixtures("readers")
def test_what_a_coordinator_refuses_is_told(
    groups: Run, cluster: FakeGroups, request_type: type[Message], arguments: str
) -> None:
    cluster.codes[request_type] = [GroupAuthorizationFailed.code]

    code, out, err = groups(*arguments.split())

    assert (code, out) == (ExitCode.FAILED, "")
    assert "GROUP_AUTHORIZATION_FAILED" in err


@pytest.mark.usefixtures("readers")
def test_a_group_that_vanishes_before_it_is_deleted_is_gone(
    groups: Run, cluster: FakeGroups
) -> None:
    cluster.codes[DeleteGroupsRequest] = [GroupIdNotFound.code]

    assert groups("delete", "readers")[1] == "readers: deleted\n"


def test_a_classic_group_shows_lag_and_owners(groups: Run, cluster: FakeGroups) -> None:
    cluster.groups["old"] = FakeGroup(
        state="Stable", offsets={0: 4}, classic=[classic_member("m1", 0, 2)]
    )

    [found] = as_json(groups("describe", "old", "--json"))

    assert (found["type"], found["assignor"], found["members"], found["lag"]) == (
        "classic",
        "range",
        1,
        6,
    )
    assert found["coordinator_address"] == "broker:9092"
    shown = [
        (row["partition"], row["committed"], row["end"], row["lag"], row["client"])
        for row in found["partitions"]
    ]
    assert shown == [(0, 4, 10, 6, "shop"), (2, None, 0, None, "shop")]
    text = groups("describe", "old")[1]
    assert "coordinator:   1 (broker:9092)" in text
    assert "10.0.0.1" in text


def test_a_terminal_gets_the_end_of_a_long_member_id(
    groups: Run, cluster: FakeGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "shop-50057285-b712-4639-a070-cad358b2221b"
    cluster.groups["old"] = FakeGroup(
        state="Stable", offsets={2: 0}, classic=[classic_member(long, 0), classic_member("m2", 1)]
    )
    assert long in groups("describe", "old")[1]

    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")

    shown = groups("describe", "old")[1]
    assert "…cad358b2221b" in shown
    assert long not in shown
    assert "m2" in shown


@pytest.mark.usefixtures("readers", "busy")
def test_several_groups_are_described_with_a_line_between(groups: Run) -> None:
    text = groups("describe", "--all")[1]

    assert text.count("\n\n") == 1
    assert "epoch:            3" in text
    assert [each["lag"] for each in as_json(groups("describe", "busy", "readers", "--json"))] == [
        6,
        6,
    ]


def test_a_group_that_reads_nothing_says_so(groups: Run, cluster: FakeGroups) -> None:
    cluster.groups["connect"] = FakeGroup(
        state="Stable", classic=[DescribedGroupMember(member_id="w")], protocol_type="connect"
    )

    assert "no offsets, and nothing assigned" in groups("describe", "connect")[1]


def test_what_a_client_wrote_for_itself_does_not_hide_its_group(
    groups: Run, cluster: FakeGroups
) -> None:
    member = DescribedGroupMember(member_id="m", member_metadata=b"?", member_assignment=b"?")
    cluster.groups["odd"] = FakeGroup(state="Stable", classic=[member])

    [row] = as_json(groups("members", "odd", "--json"))
    assert (row["subscribed"], row["assigned"]) == ([], {})


@pytest.mark.usefixtures("busy")
def test_members_show_what_they_have_and_what_they_will_have(groups: Run) -> None:
    rows = as_json(groups("members", "busy", "--json"))
    assert [(row["assigned"], row["target"]) for row in rows] == [
        ({TOPIC: [0, 1]}, {TOPIC: [0]}),
        ({}, {TOPIC: [1, 2]}),
    ]

    text = groups("members", "busy")[1]
    assert text.split()[:8] == [
        "MEMBER",
        "INSTANCE",
        "CLIENT",
        "HOST",
        "RACK",
        "EPOCH",
        "PARTITIONS",
        "ASSIGNED",
    ]
    assert f"{TOPIC}:1-2" in text


@pytest.mark.usefixtures("readers")
def test_a_group_without_members_says_how_it_stands(groups: Run) -> None:
    assert groups("members", "readers")[1] == "readers: no members; it is Empty\n"


@pytest.mark.usefixtures("readers")
def test_where_the_consumer_protocol_is_off_all_groups_are_classic(
    groups: Run, cluster: FakeGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        cluster,
        "_modern",
        lambda name: DescribedGroup(group_id=name, error_code=UnsupportedVersion.code),
    )

    assert as_json(groups("describe", "readers", "--json"))[0]["type"] == "classic"


def test_groups_are_deleted_all_or_none(groups: Run, cluster: FakeGroups) -> None:
    cluster.groups |= {"a": FakeGroup(), "b": FakeGroup()}

    code, _, err = groups("delete", "a", "c")
    assert (code, list(cluster.groups)) == (ExitCode.FAILED, ["a", "b"])
    assert "there is no group 'c'" in err

    assert groups("delete", "a", "c", "--if-exists")[1] == "a: deleted\nc: was not there\n"
    assert as_json(groups("delete", "b", "--json")) == [{"group": "b", "deleted": True}]
    assert cluster.groups == {}


def test_a_group_with_members_is_not_deleted(groups: Run, busy: FakeGroup) -> None:
    assert "'busy' is in use (Reconciling)" in groups("delete", "busy")[2]

    busy.state = "Empty"  # As it was when it was listed; somebody joins before it is deleted.
    assert "'busy' has members" in groups("delete", "busy")[2]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["describe", ""], ExitCode.USAGE, "an id is empty"),
        (["members", ""], ExitCode.USAGE, "an id is empty"),
        (["describe"], ExitCode.USAGE, "GROUP…, or --all"),
        (["describe", "raeders"], ExitCode.FAILED, "did you mean 'readers'?"),
        (["describe", "xyzzy"], ExitCode.FAILED, "`millstream groups list` shows all"),
        (["members", "shared"], ExitCode.FAILED, "is a share group; see `millstream share-groups"),
        (["members", "topology"], ExitCode.FAILED, "'topology' is a streams group"),
        (["delete", "shared", "--if-exists"], ExitCode.FAILED, "is a share group"),
        (["list", "--state", "stabel"], ExitCode.USAGE, "did you mean 'stable'?"),
        (["list", "--state", "x"], ExitCode.USAGE, "they are Empty, "),
    ],
)
@pytest.mark.usefixtures("readers")
def test_wrong_input_gets_one_line_that_says_what(
    groups: Run, cluster: FakeGroups, arguments: list[str], code: ExitCode, says: str
) -> None:
    cluster.groups |= {
        "shared": FakeGroup("share"),
        "topology": FakeGroup("Streams"),
        "fresh": FakeGroup(),
    }

    found, _, err = groups(*arguments)

    assert found == code, err
    assert says in err
    assert err.count("\n") == 1
