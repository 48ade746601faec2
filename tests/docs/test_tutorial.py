"""docs/tutorial runs as it is printed, page by page; the Spark pages are in test_spark_pages."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pytest

from tests.docs.pages import DOCS, Reader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

PAGES: Final = (
    "start-a-broker",
    "send-and-read",
    "share-the-work",
    "tables",
    "test-your-code",
    "what-next",
)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    yield Reader(tmp_path, f"localhost:{port}")
    lock = tmp_path / "data" / ".lock"
    if lock.exists():
        with suppress(ProcessLookupError, ValueError):
            os.kill(int(lock.read_text()), signal.SIGKILL)


def test_the_tutorial_runs_from_its_first_page_to_its_last(reader: Reader) -> None:
    for page in PAGES:
        reader.follow(DOCS / "tutorial" / f"{page}.md")
