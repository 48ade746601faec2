"""A running Apache Kafka still answers as it did when it was recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.differential.answers import differing
from tests.differential.recording import apache_kafka, ask_everything, recorded

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


def test_the_recorded_answers_are_apache_kafkas(tmp_path: Path) -> None:
    with apache_kafka(tmp_path) as address:
        answers = ask_everything(address)

    known = recorded()
    assert answers.keys() == known.keys()
    faults = [
        f"{name}: {field}: {known[name]} / {answer}"
        for name, answer in answers.items()
        for field in differing(known[name], answer)
    ]
    assert faults == []
