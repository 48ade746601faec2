"""The pages of the documentation, and how their examples are executed as a reader would.

A block of `sh` is run by bash, one of `python` by Python. One that begins with a file's name, as
`# send.py`, is what the reader saves under that name. A block of `text` behind one that was run is
what it prints; … stands for anything. Other languages (`console`, `py`) are for reading only.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
ADDRESS: Final = "localhost:9092"
"""Where the pages say that the broker is."""
READY: Final = "is ready"
"""What a reader waits for who has started a server."""

_BLOCK: Final = re.compile(
    r"^```(?P<language>\w*)\n(?P<text>.*?)^```$(?:\n\n```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
_FILE: Final = re.compile(r"# ([\w.-]+\.\w+)\n")


@dataclass(frozen=True, slots=True)
class Block:
    """One block of code, where it stands, and what it prints if the page says so."""

    language: str
    text: str
    output: str | None
    place: str

    @property
    def file_name(self) -> str | None:
        """The name under which the reader saves it."""
        named = _FILE.match(self.text)
        return None if named is None else named[1]

    def with_text(self, text: str) -> Block:
        """The same block with another text, of which the page does not say what it prints."""
        return replace(self, text=text, output=None)

    def check(self, printed: str) -> None:
        """Raise AssertionError if it printed something else than the page says."""
        if self.output is not None:
            pattern = ".*".join(re.escape(part) for part in self.output.strip().split("…"))
            assert re.fullmatch(pattern, printed.strip(), re.DOTALL), (
                f"{self.place} prints\n{printed}\ninstead of\n{self.output}"
            )


def blocks_of(page: Path) -> list[Block]:
    """The blocks of code of a page, in order."""
    content = page.read_text(encoding="utf-8")
    name = page.relative_to(ROOT).as_posix()
    return [
        Block(
            found["language"],
            found["text"],
            found["output"],
            f"{name}:{content.count(chr(10), 0, found.start()) + 1}",
        )
        for found in _BLOCK.finditer(content)
    ]


def pages() -> list[str]:
    """The README and every page of the documentation."""
    found = [ROOT / "README.md", *DOCS.rglob("*.md")]
    return sorted(page.relative_to(ROOT).as_posix() for page in found)


def pages_with_spark() -> list[str]:
    """Pages whose examples need a session of Spark."""
    return [page for page in pages() if any(map(_uses_spark, blocks_of(ROOT / page)))]


def _uses_spark(block: Block) -> bool:
    return (block.language == "python" and "millstream.spark" in block.text) or (
        block.language == "sh" and "pipeline run" in block.text and "tutorial/" in block.place
    )


@dataclass(frozen=True, slots=True)
class Reader:
    """Somebody who does what a page says, in a directory, with a broker at an address."""

    directory: Path
    address: str

    @classmethod
    def with_a_free_port(cls, directory: Path) -> Self:
        """Somebody whose broker will be where nobody else is."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            return cls(directory, f"localhost:{free.getsockname()[1]}")

    @contextmanager
    def cleaning_up(self, data: str) -> Iterator[None]:
        """Ends the server of this directory if the page did not come to that."""
        try:
            yield
        finally:
            lock = self.directory / data / ".lock"
            with suppress(FileNotFoundError, ProcessLookupError, ValueError):
                os.kill(int(lock.read_text(encoding="utf-8")), signal.SIGKILL)

    @property
    def environment(self) -> Mapping[str, str]:
        """This Python first on the path; commands that name no broker find ours.

        Options that are meant for this run of pytest are not for those of a page.
        """
        return {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTEST_ADDOPTS": "",
            "MILLSTREAM_BOOTSTRAP_SERVER": self.address,
            "MILLSTREAM_LISTENERS": f"PLAINTEXT://{self.address}",
        }

    def save(self, block: Block) -> None:
        """Put the block into its file."""
        assert block.file_name is not None
        (self.directory / block.file_name).write_text(self.localized(block), encoding="utf-8")

    def localized(self, block: Block) -> str:
        """The block with the broker's real address."""
        return block.text.replace(ADDRESS, self.address)

    def follow(self, page: Path) -> None:
        """Do everything that the page says; AssertionError if something comes out otherwise."""
        for block in blocks_of(page):
            if block.file_name is not None:
                self.save(block)
            elif block.language == "sh":
                block.check(self.run(block, ["bash", "-euo", "pipefail", "-c"]))
            elif block.language == "python":
                block.check(self.run(block, [sys.executable, "-W", "error", "-c"]))

    def run(self, block: Block, command: list[str]) -> str:
        """What the block prints, by a file: a server that it starts would hold a pipe open."""
        printed = self.directory / f".printed-{block.place.replace('/', '-')}"
        with printed.open("wb") as output:
            run = subprocess.run(
                [*command, self.localized(block)],
                cwd=self.directory,
                env=self.environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if block.text.endswith("&\n"):
            _wait_for(printed, READY)
        text = printed.read_text(encoding="utf-8")
        assert run.returncode == 0, f"{block.place} failed:\n{text}"
        return text


def _wait_for(printed: Path, words: str) -> None:
    def found() -> str:
        return printed.read_text(encoding="utf-8")

    until(lambda: words in found(), found)
