"""`consume` from the command line down to what is printed, with a cluster in memory."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from millstream.cli import consume
from millstream.cli.app import run
from millstream.cli.consume import Where, spans
from millstream.cli.faults import CommandFailed, ExitCode
from millstream.cli.topic_reader import Span
from millstream.protocol.messages import FetchRequest, ListOffsetsRequest
from tests.unit.cli.fake_cluster import TOPIC, FakeCluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.protocol.message import Message
    from millstream.protocol.messages.fetch import PartitionData

    Consume = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cluster() -> FakeCluster:
    """Two partitions: ten records, one a batch and a second, and none."""
    made = FakeCluster(partitions=2)
    for number in range(10):
        made.append(0, b"%d" % number, timestamp=number * 1000)
    return made


@pytest.fixture
def printed(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Consume:
    monkeypatch.setattr(consume, "open_session", lambda *_: cluster.session(timeout_s=2))

    def printed(*options: str) -> tuple[int, str, str]:
        code = run(["consume", TOPIC, *options])
        found = capfd.readouterr()
        return code, found.out, found.err

    return printed


def test_everything_is_printed_by_default(printed: Consume) -> None:
    expected = "".join(f"{number}\n" for number in range(10))

    assert printed() == (ExitCode.OK, expected, "")
    assert printed("--from-beginning") == (ExitCode.OK, expected, "")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--offset", "8"), "8 9"),
        (("-o", "10", "-p", "0"), ""),
        (("-o", "-3"), "7 8 9"),
        (("-o", "-30"), "0 1 2 3 4 5 6 7 8 9"),
        (("-n", "2"), "0 1"),
        (("--from-time", "7000"), "7 8 9"),
        (("--from-time", "7001"), "8 9"),
        (("--from-time", "now"), ""),
        (("--until", "2000"), "0 1"),
        (("--from-time", "3000", "--until", "5000"), "3 4"),
        (("--until", "now"), "0 1 2 3 4 5 6 7 8 9"),
        (("-p", "1"), ""),
        (("--follow", "--until", "4000", "-p", "0"), "0 1 2 3"),
        (("--follow", "--from-time", "8000", "--until", "now"), "8 9"),
    ],
)
def test_it_reads_from_here_to_there(
    printed: Consume, options: tuple[str, ...], expected: str
) -> None:
    if "-o" in options or "--offset" in options:
        options = (*options, "-p", "0")

    code, out, _ = printed(*options)

    assert (code, out.split()) == (ExitCode.OK, expected.split())


def test_an_offset_beyond_the_end_is_an_error(printed: Consume) -> None:
    code, _, err = printed("-o", "11")

    assert code == ExitCode.FAILED
    assert "orders-0 ends at offset 10, before 11" in err


def test_an_offset_that_is_deleted_is_told(printed: Consume, cluster: FakeCluster) -> None:
    del cluster.logs[0][:4]
    cluster.starts[0] = 4

    code, out, err = printed("-o", "2", "-n", "1", "-p", "0")

    assert (code, out) == (ExitCode.OK, "4\n")
    assert "offsets 2 to 3 are deleted; going on at 4" in err


def test_records_deleted_while_it_reads_are_told(
    printed: Consume, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = cluster._fetch

    def delete_first(partition: int, offset: int) -> PartitionData:
        if offset == 2 and not cluster.starts[0]:
            del cluster.logs[0][:5]
            cluster.starts[0] = 5
        return fetch(partition, offset)

    monkeypatch.setattr(cluster, "_fetch", delete_first)

    code, out, err = printed()

    assert (code, out.split()) == (ExitCode.OK, list("0156789"))
    assert "offsets 2 to 4 are deleted" in err


def test_it_follows_what_arrives(
    printed: Consume, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = cluster._fetch

    def append_when_idle(partition: int, offset: int) -> PartitionData:
        found = fetch(partition, offset)
        if partition == 0 and offset == 10:
            cluster.append(0, b"new")
        return found

    monkeypatch.setattr(cluster, "_fetch", append_when_idle)

    assert printed("--follow", "--from-end", "-n", "1") == (ExitCode.OK, "new\n", "")


def test_an_end_that_compaction_emptied_is_reached(
    printed: Consume, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "end", lambda partition: 12)

    assert printed("-o", "9", "-p", "0") == (ExitCode.OK, "9\n", "")


def test_a_log_that_became_shorter_is_not_read_as_if_it_went_on(
    printed: Consume, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = cluster._fetch

    def create_anew(partition: int, offset: int) -> PartitionData:
        del cluster.logs[0][1:]
        return fetch(partition, offset)

    monkeypatch.setattr(cluster, "_fetch", create_anew)

    code, _, err = printed("-o", "7", "-p", "0")

    assert code == ExitCode.FAILED
    assert "orders-0 now ends before offset 7: was the topic created anew?" in err


def test_brokers_that_are_gone_are_no_end(
    printed: Consume, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = cluster._fetch

    def hang_up(request: Message) -> Message | None:
        if cluster.requests and isinstance(cluster.requests[-1], FetchRequest):
            return None
        return respond(request)

    def fetch_nothing(partition: int, offset: int) -> PartitionData:
        found = fetch(partition, offset)
        found.records = b""
        return found

    respond = cluster.respond
    monkeypatch.setattr(cluster, "_fetch", fetch_nothing)
    monkeypatch.setattr(cluster, "respond", hang_up)

    code, out, err = printed("-p", "0", "--timeout", "2")

    assert (code, out) == (ExitCode.UNREACHABLE, "")
    assert "--timeout" in err


def test_json_is_one_object_to_a_line(printed: Consume) -> None:
    _, out, _ = printed("--json", "-n", "2")

    assert [json.loads(line)["offset"] for line in out.splitlines()] == [0, 1]


def test_a_format_and_keys_are_printed(printed: Consume) -> None:
    assert printed("-n", "1", "-F", r"%o=%s\n")[1] == "0=0\n"
    assert printed("-n", "1", "-K", ":", "--null", "-")[1] == "-:0\n"
    assert printed("-n", "1", "-e", "hex")[1] == "30\n"


def test_committed_records_are_asked_for_everywhere(printed: Consume, cluster: FakeCluster) -> None:
    assert printed("--isolation", "read_committed")[0] == ExitCode.OK

    levels = {
        request.isolation_level
        for request in cluster.requests
        if isinstance(request, ListOffsetsRequest | FetchRequest)
    }
    assert levels == {1}


def test_without_follow_every_partition_has_an_end(cluster: FakeCluster) -> None:
    where = Where([0, 1], until_ms=99_000)

    assert spans(cluster.session(), TOPIC, where) == {0: Span(0, 10), 1: Span(0, 0)}


def test_an_offset_is_checked_in_each_partition(cluster: FakeCluster) -> None:
    with pytest.raises(CommandFailed, match="orders-1 ends at offset 0"):
        spans(cluster.session(), TOPIC, Where([0, 1], offset=3))


def test_following_ends_at_a_time_that_is_known_or_still_to_come(cluster: FakeCluster) -> None:
    where = Where([0, 1], until_ms=5000, is_following=True)

    assert spans(cluster.session(), TOPIC, where) == {0: Span(0, 5), 1: Span(0, None)}


def test_a_reader_that_has_gone_is_noticed() -> None:
    read_end, write_end = os.pipe()
    with open(write_end, "wb") as out:  # noqa: PTH123 - A descriptor, no path.
        consume._require_reader(out)
        os.close(read_end)

        with pytest.raises(BrokenPipeError):
            consume._require_reader(out)


@pytest.mark.parametrize(
    ("count", "is_following", "expected"),
    [
        (0, False, "orders: 0 records; --follow waits for them\n"),
        (1, False, "orders: 1 record\n"),
        (1, True, ""),
    ],
)
def test_people_are_told_how_many_there_were(
    count: int,
    is_following: bool,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)

    consume._tell_people(TOPIC, count, Where([0], is_following=is_following))

    assert capsys.readouterr().err == expected
