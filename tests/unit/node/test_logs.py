"""How the process writes its log."""

from __future__ import annotations

import io
import json
import logging
import re
from typing import TYPE_CHECKING

import pytest

from millstream.node.logs import configure

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def output() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_line_for_people_has_time_level_and_part(output: io.StringIO) -> None:
    configure("human", "INFO", output)

    logging.getLogger("millstream.storage.log.loader").warning("%d bytes cut", 7)
    logging.getLogger("millstream.storage.log.loader").debug("not this")

    pattern = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} WARNING storage: 7 bytes cut\n"
    assert re.fullmatch(pattern, output.getvalue())


def test_a_json_line_is_one_object_with_its_traceback(output: io.StringIO) -> None:
    configure("json", "DEBUG", output)

    try:
        int("héllo\nworld")
    except ValueError:
        logging.getLogger("millstream.node.main").exception("failed")

    (line,) = output.getvalue().splitlines()
    found = json.loads(line)
    assert (found["level"], found["part"], found["message"]) == ("ERROR", "node", "failed")
    assert found["time_ms"] > 1_600_000_000_000
    assert "héllo" in found["traceback"]
