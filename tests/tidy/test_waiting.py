"""Tests wait for events: sleeping is for `tests/waiting.py` and for what is listed here."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from tools import tidy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WAITING = "tests/waiting.py"
SLEEPING = {
    WAITING: "looks again at what does not announce itself",
    "tests/integration/client/test_punctual_heartbeats.py": "C code holds the GIL for sessions",
    "tests/interop/cluster/workloads.py": "a load has a pace",
    "tests/interop/spark_cluster_job.py": "a task that is slow, in a worker of Spark",
    "tests/spark/soak_job.py": "kills at a moment chosen by chance, in a worker of Spark",
    "tests/wire/mini_broker.py": "a broker that lets an empty fetch wait",
}
"""Files that sleep by themselves."""
LETTING_TIME_PASS = {
    "tests/integration/client/producer/sending_soak.py": "chance decides when something breaks",
    "tests/integration/client/test_retrying.py": "handlers that take long",
    "tests/integration/cluster/replication_kill.py": "chance decides when a broker is killed",
    "tests/integration/cluster/soak.py": "chance decides how long a disturbance lasts",
    "tests/integration/coordinator/exactly_once.py": "chance decides when a process is killed",
    "tests/integration/faults/kill.py": "chance decides when a broker is killed",
    "tests/integration/faults/memory.py": "a load has a pace, and memory is looked at now and then",
    "tests/integration/faults/test_connections.py": "idle connections use no processor time",
    "tests/integration/faults/test_signals.py": "a stop goes on waiting; signals during a start",
    "tests/integration/node/test_processes.py": "an idle node uses no processor time",
    "tests/interop/cluster/test_disturbances.py": "a broker hangs for longer than a session",
    "tests/unit/accel/socket_lives.py": "threads could act on what they must not act on",
}
"""Files in which the time itself is the event, because nothing must happen meanwhile."""


def test_tests_wait_for_events_and_not_for_a_time() -> None:
    found = {tidy.relative(path): sorted(sleeps(path.read_text("utf-8"))) for path in _tests()}

    assert {path: lines for path, lines in found.items() if lines and path not in SLEEPING} == {}
    assert [path for path in SLEEPING if not found[path]] == [], "these sleep no more"


def test_only_tests_that_nothing_happens_let_time_pass() -> None:
    named = {
        tidy.relative(path)
        for path in _tests()
        if "let_time_pass(" in path.read_text("utf-8") and tidy.relative(path) not in _RULES
    }

    assert named == set(LETTING_TIME_PASS)


def test_sleeping_has_many_names() -> None:
    source = """
time.sleep(0.1)
await asyncio.sleep(PAUSE)
ctypes.PyDLL(None).usleep(3)
threading.Timer(0.3, stop).start()
Event().wait(0.5)
pause = threading.Event(); pause.wait(0.01)
await asyncio.sleep(0); done.wait(20); timer.wait(); Event().wait()
"""

    assert sorted(sleeps(source)) == [2, 3, 4, 5, 6, 7]


_RULES = (WAITING, "tests/tidy/test_waiting.py")


def _tests() -> Iterator[Path]:
    return (path for path in tidy.source_files(".py") if tidy.relative(path).startswith("tests/"))


def sleeps(source: str) -> Iterator[int]:
    """The lines of a program in which it waits for a time; an event that nobody sets is one."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and node.args and _is_sleep(node.func, node.args[0]):
            yield node.lineno


def _is_sleep(called: ast.expr, first: ast.expr) -> bool:
    match called:
        case ast.Attribute(attr="sleep" | "usleep") | ast.Name(id="sleep"):
            return not (isinstance(first, ast.Constant) and first.value == 0)
        case ast.Attribute(attr="Timer") | ast.Name(id="Timer"):
            return True
        case ast.Attribute(attr="wait", value=ast.Call(func=made)):
            return ast.unparse(made).endswith("Event")
        case ast.Attribute(attr="wait", value=ast.Name(id="pause")):
            return True
    return False
