"""What the plugin costs those who do not use it, and how it reads its option."""

from __future__ import annotations

import subprocess
import sys

import pytest

from millstream.testing.pytest_plugin import _settings


def test_loading_the_plugin_imports_nothing_of_the_broker() -> None:
    program = (
        "import pytest, sys\n"
        "before = set(sys.modules)\n"
        "import millstream.testing.pytest_plugin\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert run.stdout.split() == [
        "millstream",
        "millstream.testing",
        "millstream.testing.pytest_plugin",
    ]


def test_settings_are_keys_and_values() -> None:
    assert _settings(["num.partitions=3", " a = b=c "]) == {"num.partitions": "3", "a": "b=c"}


@pytest.mark.parametrize("assignment", ["num.partitions", "=3"])
def test_a_setting_without_key_or_value_is_refused(assignment: str) -> None:
    with pytest.raises(pytest.UsageError, match="KEY=VALUE"):
        _settings([assignment])
