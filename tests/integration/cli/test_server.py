"""A node run, looked at and stopped by commands alone, each a process of its own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from millstream.cli.faults import ExitCode
from tests.integration.cli.commands import run_command
from tests.integration.node.harness import running

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(180)]


def test_a_cluster_is_formatted_run_described_and_stopped(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    cluster_id = run_command("storage", "random-uuid").out.strip()
    formatted = run_command("storage", "format", "-t", cluster_id, "--data", data)
    assert formatted.code == ExitCode.OK, formatted

    with running(tmp_path / "data") as node:
        # A variable for the commands is no setting of a server: nothing is said about it.
        address = node.until_ready()
        environment = {"MILLSTREAM_BOOTSTRAP_SERVER": address}

        described = run_command("cluster", "describe", "--json", environment=environment).json()
        assert described["cluster_id"] == cluster_id
        assert [broker["broker"] for broker in described["brokers"]] == [1]
        levels = {each["feature"]: each["release"] for each in described["features"]}
        assert levels["metadata.version"] == "4.3-IV0"

        quorum = run_command("quorum", "describe", "--json", environment=environment).json()
        assert quorum["leader"] == 1
        assert [each["role"] for each in quorum["replicas"]] == ["leader"]
        assert "ENDPOINTS" in run_command("quorum", "describe", environment=environment).out
        assert cluster_id in run_command("cluster", "describe", environment=environment).out

        status = run_command("server", "status", "--data", data, "--json").json()
        assert (status["running"], status["pid"]) == (True, node.pid)

        stopped = run_command("server", "stop", "--data", data)
        assert stopped.code == ExitCode.OK, stopped
        code, log = node.finish()

    assert code == 0
    assert log.rstrip().endswith("stopped")
    assert run_command("server", "status", "--data", data).code == ExitCode.UNREACHABLE
    assert run_command("server", "stop", "--data", data).code == ExitCode.FAILED


def test_the_files_of_a_running_node_are_read_and_sound(tmp_path: Path) -> None:
    with running(tmp_path / "data", "--set", "log.index.interval.bytes=200") as node:
        environment = {"MILLSTREAM_BOOTSTRAP_SERVER": node.until_ready()}
        assert run_command("topics", "create", "orders", environment=environment).code == 0
        lines = b"".join(b"a value that takes some room %d\n" % each for each in range(50))
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            produced = run_command(
                "produce", "orders", "-z", codec, stdin=lines, environment=environment
            )
            assert produced.code == 0, produced

        assert run_command("log", "dump", str(tmp_path / "data")).code == ExitCode.OK
        node.finish(15)

    verified = run_command("log", "dump", str(tmp_path / "data"), "--verify")
    assert verified.code == ExitCode.OK, verified
    assert "250 records" in verified.out

    log = tmp_path / "data" / "__cluster_metadata-0"
    shown = run_command("log", "dump", str(log), "--records", "--json").out.splitlines()
    records = [record for line in shown for record in json.loads(line).get("records", ()) if record]
    assert any(record.get("record") == "TopicRecord" for record in records)
    assert not any("problem" in record for record in records)
