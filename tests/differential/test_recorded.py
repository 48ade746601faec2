"""Millstream answers as Apache Kafka did when it was recorded, but for the written differences."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.differential.answers import differing
from tests.differential.cluster import SETTINGS
from tests.differential.recording import ask_everything, compare, known_differences, recorded
from tests.integration.node.harness import running

if TYPE_CHECKING:
    from tests.differential.answers import Answer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer]:
    """What a new broker of ours answers; nothing of it may trouble the broker."""
    arguments = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
    with running(tmp_path_factory.mktemp("differential"), *arguments) as node:
        answers = ask_everything(node.until_ready())
        code, log = node.finish(signal.SIGTERM)
    assert code == 0
    assert "Traceback" not in log
    return answers


def test_answers_are_those_of_apache_kafka(ours: dict[str, Answer]) -> None:
    faults, unmet = compare(recorded(), ours)

    assert faults == []
    assert unmet == []


def test_every_request_was_recorded(ours: dict[str, Answer]) -> None:
    missing = ours.keys() - recorded().keys()

    assert not missing, "python -m tests.differential.recording asks Apache Kafka anew"


def test_every_difference_has_its_reason() -> None:
    assert all(len(each.reason) > 20 for each in known_differences())


def test_differences_are_found_wherever_they_are() -> None:
    one = {"a": 1, "b": [{"c": 2, "d": 3}], "e": [1, 2]}
    other = {"a": 1, "b": [{"c": 4, "d": 3}], "e": [1], "f": 0}

    assert list(differing(one, other)) == ["b.c", "e", "f"]
    assert list(differing("closed", one)) == [""]
