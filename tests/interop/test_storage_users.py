"""The first users of a cluster, by `storage format --add-scram`: Apache Kafka's tools read them."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from millstream.cli.main import main
from tests.integration.node.harness import running
from tests.interop.tools import Cluster
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.tools import JavaTools

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]


def test_the_tools_of_apache_kafka_find_the_first_users(java: JavaTools, tmp_path: Path) -> None:
    data = tmp_path / "data"
    user = "SCRAM-SHA-256=[name=alice,iterations=8192,password=secret]"
    other = "SCRAM-SHA-512=[name=bob,password=secret]"
    assert main(["storage", "format", "--data", str(data), "-S", user, "-S", other]) == 0

    decoder = ("--cluster-metadata-decoder", "--files", data / "bootstrap.checkpoint")
    dumped = java.run("kafka-dump-log", *decoder)
    assert '"type":"USER_SCRAM_CREDENTIAL_RECORD"' in dumped
    assert '"name":"alice","mechanism":1' in dumped
    with running(data) as node:
        cluster = Cluster(java, node.until_ready())
        found = cluster.run("kafka-configs", "--describe", "--entity-type", "users")
        assert "user-principal 'alice' are SCRAM-SHA-256=iterations=8192" in found
        assert "user-principal 'bob' are SCRAM-SHA-512=iterations=4096" in found
        assert node.finish(signal.SIGTERM)[0] == 0
    (log,) = (data / "__cluster_metadata-0").glob("*.log")

    def users(mechanism: str) -> list[str]:
        ran = java.attempt(
            "kafka-metadata-shell", "--snapshot", log, "ls", f"/image/scram/{mechanism}"
        )
        return ran.out.split()

    # It answers as soon as it has read something; each command reads from the beginning.
    until(lambda: users("SCRAM-SHA-256") == ["alice"])
    until(lambda: users("SCRAM-SHA-512") == ["bob"])
