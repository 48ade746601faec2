"""Definitions of pipelines as tests write them: files in a directory."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from millstream.spark.pipelines.loading import faults_of, load

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.spark.pipelines.definition import Pipeline

SMALL = """
name: orders
cluster: {bootstrap_servers: "localhost:9092"}
sources:
  raw: {format: topic, topic: orders}
sinks:
  out: {from: raw, format: topic, topic: copies}
"""
"""The least that is whole."""


def write(directory: Path, definition: str = SMALL, **files: str) -> Path:
    """Write a definition and its libraries, whose dots are underscores: `views_sql=`."""
    (directory / "pipeline.yaml").write_text(textwrap.dedent(definition))
    for name, text in files.items():
        (directory / name.replace("_", ".")).write_text(textwrap.dedent(text))
    return directory


def defined(directory: Path, definition: str = SMALL, **files: str) -> Pipeline:
    """The pipeline of a definition that has no fault."""
    return load(write(directory, definition, **files), environment={})


def problems(directory: Path, definition: str, **files: str) -> list[str]:
    """The faults of a definition: line, column, problem."""
    found = faults_of(write(directory, definition, **files), environment={})
    return [f"{each.place.line}:{each.place.column} {each.problem}" for each in found]
