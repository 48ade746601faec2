"""docs/reference/cli.md has every command, as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer.main

from millstream.cli.app import COMMANDS, app
from millstream.cli.reference import render_commands, split_examples

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_commands(), (
        "docs/reference/cli.md is stale: python -m tests.unit.cli.test_reference writes it"
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_that_can_be_run(name: str) -> None:
    root = typer.main.get_command(app)
    command = root.get_command(None, name)  # type: ignore[attr-defined]  # A group's.

    for each in getattr(command, "commands", {name: command}).values():
        _, examples = split_examples(each.help)
        assert examples, each.name
        assert all("millstream " in example for example in examples)


if __name__ == "__main__":
    PAGE.write_text(render_commands(), encoding="utf-8")
