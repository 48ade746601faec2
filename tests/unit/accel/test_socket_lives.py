"""Connections whose memory another thread, or epoll, could still speak of when they end."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from millstream import _accel

if sys.platform != "linux" or not _accel.COMPILED:
    pytest.skip("the compiled selector is not built (make build)", allow_module_level=True)

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def slow_sendmsg(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that makes `sendmsg` wait."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    made = tmp_path_factory.mktemp("slow") / "slow_sendmsg.so"
    source = str(HERE / "slow_sendmsg.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(made), source, "-ldl"], check=True)
    return made


def slowed(library: Path, tmp_path: Path) -> dict[str, str]:
    """What makes `sendmsg` of a process wait. What is preloaded already, such as ASan, stays."""
    preloaded = [os.environ.get("LD_PRELOAD", ""), str(library)]
    return {"LD_PRELOAD": " ".join(filter(None, preloaded)), "SLOW_SENDMSG": str(tmp_path / "slow")}


def live(which: str, **environment: str) -> None:
    """Run a life; freed memory is overwritten at once."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.unit.accel.socket_lives", which],
        env={**os.environ, "MALLOC_PERTURB_": "165", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def test_a_socket_that_a_forked_child_holds_is_forgotten_by_epoll() -> None:
    live("forked")


def test_a_connection_that_ends_while_a_thread_sends_is_closed(
    slow_sendmsg: Path, tmp_path: Path
) -> None:
    live("writing", **slowed(slow_sendmsg, tmp_path))


def test_shutting_down_waits_for_a_thread_that_sends(slow_sendmsg: Path, tmp_path: Path) -> None:
    live("shut_down", **slowed(slow_sendmsg, tmp_path))
