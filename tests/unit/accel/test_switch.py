"""MILLSTREAM_IMPL and COMPILED: which kernel a process runs, and how it says so."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from millstream import _accel

WHICH = (
    "from millstream import _accel; from millstream.records import kernel;"
    "print(_accel.COMPILED, kernel.crc32c.__module__, kernel.ArrowRecordsBuilder.__module__)"
)


def hide(module: str) -> str:
    """Code that makes a module one that was not built."""
    return f"import sys; sys.modules['millstream._accel.{module}'] = None;"


def run(code: str, implementation: str | None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "MILLSTREAM_IMPL"}
    if implementation is not None:
        environment["MILLSTREAM_IMPL"] = implementation
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )


def last_line(process: subprocess.CompletedProcess[str]) -> str:
    return process.stderr.strip().splitlines()[-1]


def is_built() -> bool:
    return run("import millstream._accel.arrow.records", "python").returncode == 0


needs_the_kernel = pytest.mark.skipif(
    not is_built(), reason="the compiled kernel is not built (make build)"
)


def test_python_means_the_plain_versions() -> None:
    process = run(WHICH, "python")

    assert process.stdout.split() == [
        "False",
        "millstream.records.plain.crc32c",
        "millstream.records.plain.arrow_builder",
    ]


@needs_the_kernel
@pytest.mark.parametrize("implementation", ["compiled", "", None])
def test_the_kernel_runs_where_it_was_built(implementation: str | None) -> None:
    process = run(WHICH, implementation)

    assert process.stdout.split() == [
        "True",
        "millstream._accel.codec.crc32c",
        "millstream._accel.arrow.builder",
    ]


def test_another_word_is_refused_with_the_choices() -> None:
    process = run(WHICH, "Rust")

    assert process.returncode == 1
    assert last_line(process) == (
        "ImportError: MILLSTREAM_IMPL is 'Rust'; set it to 'compiled' or 'python', "
        "or leave it unset"
    )


@pytest.mark.parametrize("hidden", ["codec.record_codec", "broker.log_tail", "client.delivery"])
def test_a_kernel_that_is_half_built_does_not_run(hidden: str) -> None:
    process = run(hide(hidden) + WHICH, None)

    assert process.stdout.split()[:2] == ["False", "millstream.records.plain.crc32c"]


def test_insisting_on_a_kernel_that_is_not_there_says_what_to_do() -> None:
    process = run(hide("codec.record_codec") + WHICH, "compiled")

    assert process.returncode == 1
    assert last_line(process) == (
        "ImportError: MILLSTREAM_IMPL is 'compiled' but the extension modules were not built; "
        "install a C compiler and reinstall Millstream, or unset MILLSTREAM_IMPL"
    )


def test_this_process_knows_which_it_runs() -> None:
    assert isinstance(_accel.COMPILED, bool)
    assert _accel.IMPLEMENTATIONS == ("compiled", "python")


@needs_the_kernel
@pytest.mark.skipif(sys.platform != "linux", reason="broker and client are compiled on Linux only")
def test_parts_of_broker_and_client_are_found_where_they_can_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_accel, "COMPILED", True)
    assert _accel.find("broker.log_tail").LogTail
    assert _accel.find("client.delivery").Delivery

    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    assert _accel.find("client.delivery") is None
    assert _accel.find("client.client_selector").SelectorCore

    monkeypatch.setattr(sys, "platform", "darwin")
    assert _accel.find("client.client_selector") is None

    monkeypatch.undo()
    monkeypatch.setattr(_accel, "COMPILED", False)
    assert _accel.find("broker.log_tail") is None
