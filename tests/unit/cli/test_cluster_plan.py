"""What a cluster on one machine is made of, and what it refuses to be."""

from __future__ import annotations

import json
import socket
from random import Random
from typing import TYPE_CHECKING

import pytest

from millstream.cli.cluster_plan import (
    PLAN_NAME,
    format_nodes,
    new_plan,
    node_config_of,
    read_plan,
    write_plan,
    write_properties,
)
from millstream.cli.faults import ExitCode
from millstream.cli.main import main
from millstream.cli.supervisor import NodeState
from millstream.node.formatting import storage_info
from millstream.storage.disk import DiskFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.cli.cluster_plan import ClusterPlan

    Run = Callable[..., tuple[int, str, str]]

FILES = DiskFileSystem()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: object) -> tuple[int, str, str]:
        code = main(["cluster", *map(str, arguments)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """The directory of a cluster that has never run."""
    plan = new_plan(2, 0, "127.0.0.1:0", Random(1))
    keep(tmp_path, plan)
    return tmp_path


def keep(directory: Path, plan: ClusterPlan) -> None:
    write_plan(FILES, str(directory), plan)
    write_properties(FILES, str(directory), plan, {"log.retention.hours": "2"})


def test_nodes_are_both_unless_there_are_controllers() -> None:
    plan = new_plan(3, 0, "127.0.0.1:19092", Random(1))

    assert [each.roles for each in plan.nodes] == [("broker", "controller")] * 3
    assert plan.bootstrap_servers == "127.0.0.1:19092,127.0.0.1:19093,127.0.0.1:19094"
    assert len({each.controller_port for each in plan.nodes}) == 3


def test_controllers_of_their_own_come_after_the_brokers() -> None:
    plan = new_plan(2, 3, "0.0.0.0:19092", Random(1))

    roles = [each.roles for each in plan.nodes]
    assert roles == [("broker",), ("broker",), *[("controller",)] * 3]
    assert [each.id for each in plan.controllers] == [3, 4, 5]
    assert plan.bootstrap_servers == "localhost:19092,localhost:19093"
    assert plan.address(plan.nodes[2]) == f"127.0.0.1:{plan.nodes[2].controller_port}"


def test_a_plan_is_found_again(tmp_path: Path) -> None:
    plan = new_plan(2, 1, "[::1]:0", Random(1))
    write_plan(FILES, str(tmp_path), plan)

    assert read_plan(str(tmp_path)) == plan
    assert read_plan(str(tmp_path / "elsewhere")) is None


def test_brokers_may_move_and_controllers_stay() -> None:
    plan = new_plan(2, 0, "127.0.0.1:19092", Random(1))

    moved = plan.with_listen("localhost:29092")

    assert moved.bootstrap_servers == "localhost:29092,localhost:29093"
    before = [each.controller_port for each in plan.nodes]
    assert [each.controller_port for each in moved.nodes] == before


def test_all_nodes_are_formatted_for_the_same_cluster(cluster: Path) -> None:
    plan = read_plan(str(cluster))
    assert plan is not None

    for _ in range(2):  # Once more, as after a crash.
        formatted = format_nodes(FILES, str(cluster), plan, Random(2), 0)

    assert formatted.is_formatted
    assert read_plan(str(cluster)) == formatted
    for node in plan.nodes:
        config = node_config_of(str(cluster), node)
        assert config.process.node_id == node.id
        info = storage_info(config, FILES)
        assert info.cluster_id == plan.cluster_id
        assert str(info.metas[config.metadata_dir].directory_id) == node.directory_id


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--nodes", "0"), "--nodes 0: must be from 1 to 100"),
        (("--controllers", "-1"), "--controllers -1: must be from 0"),
        (("--listen", "9092"), "write it as HOST:PORT"),
        (("--listen", "127.0.0.1:65535"), "need ports up to 65537"),
        (("--set", "nothing"), "write it as key=value"),
        (("--data", "a,b"), "without a comma"),
    ],
)
def test_options_that_cannot_be(
    run: Run, tmp_path: Path, options: tuple[str, ...], says: str
) -> None:
    code, _, err = run("start", "--data", tmp_path / "c", *options)

    assert (code, says in err, err.count("\n")) == (ExitCode.USAGE, True, 1)
    assert read_plan(str(tmp_path / "c")) is None


def test_a_setting_that_cannot_be_is_told_before_anything_starts(run: Run, cluster: Path) -> None:
    code, _, err = run("start", "--data", cluster, "--set", "broker.session.timeout.ms=x")

    assert (code, "broker.session.timeout.ms" in err) == (ExitCode.FAILED, True)


def test_a_cluster_keeps_its_number_of_nodes(run: Run, cluster: Path) -> None:
    for options in (("--nodes", "3"), ("--controllers", "1")):
        code, _, err = run("start", "--data", cluster, *options)
        assert (code, "made with --nodes 2:" in err) == (ExitCode.FAILED, True)


def test_the_data_of_a_single_server_is_not_taken(run: Run, tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()

    code, _, err = run("start", "--data", tmp_path)

    assert (code, "of a single server" in err) == (ExitCode.FAILED, True)


def test_a_port_that_is_taken_is_named(run: Run, cluster: Path) -> None:
    plan = read_plan(str(cluster))
    assert plan is not None
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = run("start", "--data", cluster, "--listen", f"127.0.0.1:{port}")
    assert (code, f"127.0.0.1:{port} of node 1 is in use" in err) == (ExitCode.FAILED, True)

    with socket.create_server(("127.0.0.1", plan.nodes[1].controller_port or 0)):
        _, _, err = run("start", "--data", cluster)
    assert "of node 2 is in use" in err

    _, _, err = run("start", "--data", cluster, "--listen", "192.0.2.1:19092")
    assert "cannot listen on 192.0.2.1:19092 of node 1" in err


def test_a_directory_that_cannot_be_written_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    code, _, err = run("start", "--data", tmp_path / "file" / "below")

    assert (code, "below" in err, err.count("\n")) == (ExitCode.FAILED, True, 1)


def test_a_directory_has_one_supervisor(run: Run, cluster: Path) -> None:
    lock = FILES.lock_directory(str(cluster))

    code, _, err = run("start", "--data", cluster)

    lock.release()
    assert (code, "runs on" in err) == (ExitCode.FAILED, True)


@pytest.mark.parametrize("content", ["", "{}", '{"format": 1, "nodes": [{}]}', '{"format": 2}'])
def test_a_plan_that_cannot_be_read(run: Run, tmp_path: Path, content: str) -> None:
    (tmp_path / PLAN_NAME).write_text(content)

    for command in ("start", "status", "stop"):
        code, _, err = run(command, "--data", tmp_path)
        assert (code, str(tmp_path / PLAN_NAME) in err) == (ExitCode.FAILED, True)


def test_a_cluster_that_does_not_run_has_a_status(run: Run, cluster: Path) -> None:
    code, out, _ = run("status", "--data", cluster, "--json")

    found = json.loads(out)
    assert (code, found["supervisor_pid"]) == (ExitCode.UNREACHABLE, None)
    assert [each["state"] for each in found["nodes"]] == [NodeState.STOPPED] * 2
    assert run("stop", "--data", cluster)[::2] == (
        ExitCode.FAILED,
        f"millstream: no cluster runs on {cluster}\n",
    )


def test_where_there_is_no_cluster_it_says_so(run: Run, tmp_path: Path) -> None:
    for command in ("status", "stop"):
        code, _, err = run(command, "--data", tmp_path)
        assert (code, "has no cluster" in err) == (ExitCode.FAILED, True)
    assert "above 0" in run("stop", "--data", tmp_path, "--timeout", "0")[2]
