"""Runs stories: text files in which commands and their expected output stand together.

    # A comment says what the story is about.
    cut 3; run 10s
    show
    ----
    leader=1 epoch=4

A block is commands (one per line, or several with `;`), a line of dashes and the output, which
ends at an empty line. An interpreter (a function from a command to its lines of output) knows what
the commands mean; there is one per subject. With MILLSTREAM_REWRITE_SCENARIOS=1 in the environment
the expected output is replaced by the real one: look at the difference before committing it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Interpreter = Callable[[str], list[str]]

DASHES = "----"


@dataclass
class Block:
    """Some commands, as they stand in the file with their comments, and their expected output."""

    lines: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)
    has_output: bool = False

    @property
    def commands(self) -> list[str]:
        """The commands, without comments."""
        code = (line.partition("#")[0] for line in self.lines)
        return [each.strip() for line in code for each in line.split(";") if each.strip()]

    def render(self, output: list[str]) -> str:
        """The block as text, with this output."""
        dashes = [DASHES] if self.has_output or output else []
        return "\n".join([*self.lines, *dashes, *output])


def parse(text: str) -> list[Block]:
    """The blocks of a story."""
    blocks = []
    for paragraph in text.strip("\n").split("\n\n"):
        lines = paragraph.splitlines()
        if DASHES in lines:
            at = lines.index(DASHES)
            blocks.append(Block(lines[:at], lines[at + 1 :], has_output=True))
        else:
            blocks.append(Block(lines))
    return blocks


def run_story(path: Path, interpreter: Interpreter) -> None:
    """Run a file's commands and compare their output, or rewrite it."""
    blocks = parse(path.read_text(encoding="utf-8"))
    rendered, expected = [], []
    for block in blocks:
        output = [line.rstrip() for command in block.commands for line in interpreter(command)]
        rendered.append(block.render(output))
        expected.append(block.render(block.expected))
    if os.environ.get("MILLSTREAM_REWRITE_SCENARIOS") == "1":
        path.write_text("\n\n".join(rendered) + "\n", encoding="utf-8")
    else:
        assert rendered == expected
