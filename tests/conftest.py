"""What all tests share: Hypothesis profiles, signals, the order of tests, and what they cost.

`HYPOTHESIS_PROFILE` picks a profile: dev (default), ci (reproducible) or night (long). Tests come
in the random order of pytest-randomly, but modules with long ones before the others.
"""

from __future__ import annotations

import gc
import os
import signal
from itertools import cycle, groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

WITH_SPARK = Path(__file__).parent / "spark"

# A shell's background job has Ctrl-C ignored, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Shared runners stall now and then; a slow example is not a wrong one.
settings.register_profile("dev", deadline=None, max_examples=100, print_blob=True)
settings.register_profile(
    "ci",
    deadline=None,
    max_examples=100,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("night", deadline=None, max_examples=5_000, print_blob=True)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if "CI" in os.environ else "dev")
)

# Spark's JVMs live for seconds here: compiling and collecting at their best costs them double.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """All that is collected stays to the end: no search for garbage looks at it, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put long tests first, so that workers end together; the tests of a module stay together."""
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    modules = [list(tests) for _, tests in groupby(items, key=lambda test: test.path)]
    items[:] = in_parts(modules, workers)


def in_parts(modules: Iterable[list[pytest.Item]], workers: int) -> list[pytest.Item]:
    """All tests in an order whose equal parts, one for each worker, begin with long tests.

    `--dist worksteal` gives every worker such a part, and moves tests from the end of what another
    has left to those who have done theirs. The first part has all tests with Spark, which each
    worker that needs it would start once more, and no other long ones.
    """
    with_spark: list[pytest.Item] = []
    long: list[list[pytest.Item]] = []
    short: list[pytest.Item] = []
    for module in modules:
        if module[0].path.is_relative_to(WITH_SPARK):
            with_spark += module
        elif any(test.get_closest_marker("slow") for test in module):
            long.append(module)
        else:
            short += module
    parts: list[list[pytest.Item]] = [with_spark, *([] for _ in range(workers - 1))]
    takers = cycle(parts[1:] if with_spark and workers > 1 else parts)
    for module in long:
        next(takers).extend(module)
    left = sum(map(len, parts)) + len(short)
    rest = iter(short)
    for number, part in enumerate(parts):
        part += islice(rest, max(0, left // (workers - number) - len(part)))
        left -= len(part)
    return [test for part in parts for test in part] + list(rest)
