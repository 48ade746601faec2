"""Clients that are opened and closed many times leave nothing behind.

A short slice of `make cycles`, in a process of its own: what other tests leave running in this one
would be counted too.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

CYCLES = 100

pytestmark = pytest.mark.integration


def test_clients_that_come_and_go_leave_nothing() -> None:
    command = [sys.executable, "-m", "tools.client_cycles", "--cycles", str(CYCLES)]

    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
