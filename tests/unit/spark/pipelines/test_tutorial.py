"""The definitions that the tutorial and `init` show have no fault."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream.spark.pipelines.example import FILES, write_example
from millstream.spark.pipelines.graph import as_text, graph_of
from millstream.spark.pipelines.loading import load
from tests.unit.spark.pipelines.project import defined

if TYPE_CHECKING:
    from millstream.spark.pipelines.definition import Pipeline

PAGE = Path(__file__).parents[4] / "docs" / "topics" / "pipelines.md"
DEFINITIONS = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
PYTHON = re.findall(r"^```py\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda text: text.split("\n", 1)[0])
def test_a_definition_of_the_page_has_no_fault(tmp_path: Path, definition: str) -> None:
    assert defined(tmp_path, definition).sinks


def test_the_page_has_definitions_and_its_python_can_be_read() -> None:
    assert len(DEFINITIONS) >= 3
    for text in PYTHON:
        compile(text, "page", "exec")


@pytest.fixture
def example(tmp_path: Path) -> Pipeline:
    write_example(tmp_path)
    return load(tmp_path, environment={})


def test_the_page_shows_the_graph_of_the_example(tmp_path: Path, example: Pipeline) -> None:
    drawn = as_text(graph_of(example)).replace(f"{tmp_path}/", "")

    assert f"```text\n{drawn}\n```" in PAGE.read_text("utf-8")


def test_the_example_explains_itself(example: Pipeline) -> None:
    assert example.cluster.bootstrap_servers == "localhost:9092"
    assert FILES["pipeline.yaml"].count("#") > 10
