"""Commands run in this process, against a broker that a module chooses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.cli.main import main
from tests.integration.cli.commands import Outcome, own_words

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def run_at(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[str], Callable[..., Outcome]]:
    """For the address of a broker: what runs a command line, with lines for its stdin."""

    def run(*arguments: str, stdin: str = "") -> Outcome:
        (tmp_path / "stdin").write_text(stdin)
        with (tmp_path / "stdin").open() as file:
            monkeypatch.setattr("sys.stdin", file)
            code = main(arguments)
        printed = capfd.readouterr()
        return Outcome(code, printed.out, own_words(printed.err))

    def at(address: str) -> Callable[..., Outcome]:
        monkeypatch.setenv("MILLSTREAM_BOOTSTRAP_SERVER", address)
        return run

    return at
