"""Every story beside this file comes out as it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.consumer_group.interpreter import ConsumerGroupInterpreter
from tests.scenarios.runner import run_story

STORIES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story_comes_out_as_written(path: Path) -> None:
    run_story(path, ConsumerGroupInterpreter())
