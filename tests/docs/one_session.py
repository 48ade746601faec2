"""Executes the examples of pages that use Spark, one page after the other in this one process.

A JVM takes longer to start and to get warm than all the examples take, and it stays when a session
is stopped. `test_spark_pages` starts this with the pages as arguments, in an empty directory; it
says which page it is at. Paths of the examples are relative to where the JVM was started, so the
directory is emptied between two pages.
"""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.cli.main import main as millstream
from millstream.testing import EmbeddedBroker
from tests.docs.pages import ROOT, Reader, blocks_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.docs.pages import Block


def follow(page: Path, reader: Reader) -> None:
    """Do what the page says; its programs and its pipelines in this process."""
    program: list[str] = []
    for block in blocks_of(page):
        if block.file_name is not None:
            reader.save(block)
        elif block.language == "python":
            program.append(block.text)
        elif block.language == "sh" and page.parent.name == "tutorial":
            block.check(_in_this_process(block, reader))
    # One after the other, with the names that earlier ones have made.
    exec(compile("\n\n".join(program), str(page), "exec"), {"__name__": "__main__"})


def _in_this_process(block: Block, reader: Reader) -> str:
    printed = io.StringIO()
    for line in block.text.splitlines():
        words = shlex.split(line)
        if words[0] == "python":
            with contextlib.redirect_stdout(printed):
                runpy.run_path(words[1], run_name="__main__")
        elif words[:3] == ["millstream", "pipeline", "run"]:
            assert millstream(words[1:]) == 0, block.place
        else:
            printed.write(
                reader.run(block.with_text(f"{line}\n"), ["bash", "-euo", "pipefail", "-c"])
            )
    return printed.getvalue()


def main(pages: Sequence[str]) -> None:
    """Follow the pages; an exception ends it with the page as the last that was named."""
    here = Path.cwd()
    with EmbeddedBroker() as broker:
        reader = Reader(here, broker.bootstrap_servers)
        os.environ["MILLSTREAM_BOOTSTRAP_SERVER"] = broker.bootstrap_servers
        for page in pages:
            print(f"at {page}", flush=True)  # noqa: T201  # For whoever reads a failure.
            follow(ROOT / page, reader)
            for left in here.iterdir():
                shutil.rmtree(left) if left.is_dir() else left.unlink()


if __name__ == "__main__":
    main(sys.argv[1:])
