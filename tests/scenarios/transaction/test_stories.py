"""Every story beside this file comes out as it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.runner import run_story
from tests.scenarios.transaction.interpreter import TransactionInterpreter

STORIES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story_comes_out_as_written(path: Path) -> None:
    run_story(path, TransactionInterpreter())
