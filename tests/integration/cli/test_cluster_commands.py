"""Commands about the nodes of a cluster: `quorum`, `brokers` and `features` on three of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.cli.faults import ExitCode
from millstream.testing import EmbeddedCluster
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.integration.cli.commands import Outcome

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(nodes=3) as cluster:
        yield cluster


@pytest.fixture
def run(
    cluster: EmbeddedCluster, run_at: Callable[[str], Callable[..., Outcome]]
) -> Callable[..., Outcome]:
    return run_at(cluster.bootstrap_servers)


def roles(run: Callable[..., Outcome]) -> dict[int, str]:
    found = run("quorum", "describe", "--json").json()
    return {each["node"]: each["role"] for each in found["replicas"]}


def test_a_voter_is_removed_and_added_again(
    cluster: EmbeddedCluster, run: Callable[..., Outcome]
) -> None:
    # A leader that leaves would have another one elected meanwhile.
    chosen = next(each for each in (1, 2, 3) if each != cluster.controller_id())
    (endpoint,) = cluster.node(chosen).controller_endpoints
    found = run("quorum", "describe", "--json").json()["replicas"]
    (directory_id,) = [each["directory_id"] for each in found if each["node"] == chosen]

    removed = run("quorum", "remove", str(chosen), "--json").json()
    assert removed == {"node": chosen, "directory_id": directory_id, "removed": True}
    until(lambda: roles(run).get(chosen) == "observer")
    again = run("quorum", "remove", str(chosen))
    assert (again.code, f"node {chosen} is no voter" in again.err) == (ExitCode.FAILED, True)

    where = f"CONTROLLER://{endpoint.host}:{endpoint.port}"
    added = run("quorum", "add", str(chosen), "--endpoint", where)
    assert added.out == f"node {chosen}: a voter now, with directory {directory_id}\n"
    until(lambda: roles(run)[chosen] == "voter")
    twice = run(
        *("quorum", "add", str(chosen), "--endpoint", where, "--directory-id", directory_id)
    )
    assert (twice.code, "DUPLICATE_VOTER" in twice.err) == (ExitCode.FAILED, True)


def test_a_controller_says_by_its_settings_who_it_is(
    run: Callable[..., Outcome], tmp_path: Path
) -> None:
    config = tmp_path / "controller.properties"
    config.write_text(
        "process.roles=controller\nnode.id=9\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=CONTROLLER://127.0.0.1:1\nlog.dirs={tmp_path}/data\n"
        "controller.quorum.bootstrap.servers=127.0.0.1:1\n"
    )
    unformatted = run("quorum", "add", "--config", str(config))
    assert "is not formatted" in unformatted.err
    run("storage", "format", "--config", str(config), "--no-initial-controllers")

    # It does not run, so the leader cannot ask it what it is able to do.
    refused = run("quorum", "add", "--config", str(config), "--timeout", "3")

    assert refused.code == ExitCode.UNREACHABLE or "REQUEST_TIMED_OUT" in refused.err
    for role in ("broker",):
        other = run("quorum", "add", "--config", str(config), "--set", f"process.roles={role}")
        assert other.code != ExitCode.OK


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("add",), "give the id of the controller"),
        (("add", "9"), "--endpoint CONTROLLER://HOST:PORT"),
        (("add", "9", "--endpoint", "here"), "--endpoint here: write it as"),
        (("add", "9", "--directory-id", "x", "--endpoint", "C://h:1"), "--directory-id x"),
        (("add", "9", "--endpoint", "C://h:1"), "node 9 is no observer"),
    ],
)
def test_a_voter_must_be_named(
    run: Callable[..., Outcome], arguments: tuple[str, ...], says: str
) -> None:
    refused = run("quorum", *arguments)

    assert (refused.code != ExitCode.OK, says in refused.err) == (True, True)


def test_features_are_raised_and_lowered(run: Callable[..., Outcome]) -> None:
    def level(name: str) -> int:
        found = run("features", "describe", "--json").json()
        return int(next(each["level"] for each in found if each["feature"] == name))

    assert level("share.version") == 1
    tried = run("features", "disable", "share.version", "--dry-run", "--json").json()
    assert tried == [{"feature": "share.version", "before": 1, "level": 0, "dry_run": True}]
    assert level("share.version") == 1

    assert run("features", "disable", "share.version").code == ExitCode.OK
    assert run("features", "downgrade", "group.version=0").code == ExitCode.OK
    until(lambda: level("share.version") == level("group.version") == 0)
    raised = run("features", "upgrade", "--release-version", "4.3", "-o", "csv")
    assert "share.version,0,1,false" in raised.out
    until(lambda: level("share.version") == level("group.version") == 1)
    assert run("features", "upgrade", "metadata.version=4.3").code == ExitCode.OK
    assert "nothing was changed" in run("features", "upgrade", "share.version=1", "--dry-run").out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("upgrade",), "name features as NAME=LEVEL"),
        (("upgrade", "share.version"), "write it as NAME=LEVEL"),
        (("upgrade", "share.version=1", "share.version=2"), "given twice"),
        (("upgrade", "metadata.version=9.9"), "there is no metadata.version"),
        (("upgrade", "--release-version", "9.9"), "there is no metadata.version"),
        (("upgrade", "shore.version=1"), "did you mean 'share.version'"),
        (("upgrade", "share.version=99"), "share.version"),
        (("downgrade", "metadata.version=3.3"), "metadata.version"),
    ],
)
def test_features_that_cannot_be(
    run: Callable[..., Outcome], arguments: tuple[str, ...], says: str
) -> None:
    refused = run("features", *arguments)

    assert (refused.code != ExitCode.OK, says in refused.err) == (True, True)


def test_brokers_are_listed_described_and_forgotten(
    cluster: EmbeddedCluster, run: Callable[..., Outcome]
) -> None:
    run("topics", "create", "held", "--partitions", "3", "--replication-factor", "1")
    listed = run("brokers", "list", "--json").json()
    assert [(each["broker"], each["fenced"]) for each in listed] == [
        (1, False),
        (2, False),
        (3, False),
    ]
    described = run("brokers", "describe", "1", "2", "--json").json()
    assert [each["broker"] for each in described] == [1, 2]
    assert all(each["dirs"] for each in described)
    everybody = run("brokers", "describe", "--json").json()
    assert sum(each["leaders"] for each in everybody) == 3

    gone = next(each for each in (1, 2, 3) if each != cluster.controller_id())
    cluster.stop(gone)
    assert run("brokers", "unregister", str(gone), "--json").json()["unregistered"]
    until(lambda: len(run("brokers", "list", "--json").json()) == 2)
    unknown = run("brokers", "unregister", "77")
    assert (unknown.code, "there is no broker 77" in unknown.err) == (ExitCode.FAILED, True)
    cluster.start(gone)
