"""A broker and a client without the compiled kernel, each a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.integration.node.harness import running

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(120)]

PLAIN = {"MILLSTREAM_IMPL": "python"}
CLIENT = """
import sys
from millstream import Consumer, Producer, _accel

assert not _accel.COMPILED
with Producer(sys.argv[1]) as producer:
    for number in range(100):
        producer.send("orders", b"v%d" % number, key=b"k%d" % number)
found = set()
with Consumer(
    sys.argv[1], "orders", group_id="readers", auto_offset_reset="earliest"
) as consumer:
    for record in consumer:
        found.add((record.key, record.value))
        if len(found) == 100:
            break
print(len(found))
"""


def test_a_broker_and_a_client_work_without_the_compiled_kernel(tmp_path: Path) -> None:
    with running(tmp_path / "data", environment=PLAIN) as node:
        client = subprocess.run(
            [sys.executable, "-c", CLIENT, node.until_ready()],
            env={**os.environ, **PLAIN},
            capture_output=True,
            text=True,
            check=False,
        )
        code, log = node.finish(signal.SIGTERM)

    assert (client.stdout, client.stderr) == ("100\n", "")
    assert code == 0
    assert "ERROR" not in log
