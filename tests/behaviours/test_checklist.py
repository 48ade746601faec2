"""The checklist names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def test_every_behaviour_of_the_checklist_has_its_test() -> None:
    rows = [
        line.split("|")[1:3]
        for line in (HERE / "README.md").read_text().splitlines()
        if line.startswith("|") and "`" in line
    ]
    missing = []
    for behaviour, cell in rows:
        path, _, name = cell.strip().strip("`").partition("::")
        file = (ROOT if "/" in path else HERE) / path
        if not file.exists() or not re.search(rf"^def {name or 'test_'}", file.read_text(), re.M):
            missing.append((behaviour.strip(), cell.strip()))

    assert len(rows) > 80
    assert missing == []
