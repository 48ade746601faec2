"""One broker process for all tests of a module, and topics of their own for each test."""

from __future__ import annotations

import signal
from itertools import count
from typing import TYPE_CHECKING

import pytest

from tests.integration.node.harness import running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_numbers = count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a broker listens. It must stop in order, and have nothing to complain about."""
    with running(tmp_path_factory.mktemp("broker")) as node:
        yield node.until_ready()
        code, log = node.finish(signal.SIGTERM)
    assert code == 0
    assert "ERROR" not in log
    assert "Traceback" not in log


@pytest.fixture
def topic_name() -> Callable[[], str]:
    """Names that no other test has."""
    return lambda: f"topic-{next(_numbers)}"


@pytest.fixture
def topic(topic_name: Callable[[], str]) -> str:
    """A topic that does not exist yet: it comes into being when it is used."""
    return topic_name()
