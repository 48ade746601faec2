"""The switch: one decision in `_accel`, and both kernels offer the same."""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any

import pytest

from millstream import _accel
from millstream.records import kernel as chosen
from tests.unit.records.kernels import PLAIN, compiled

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def reloaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Load the switch again with another decision, and put everything back afterwards."""

    def reload(*, is_compiled: bool) -> Any:
        monkeypatch.setattr(_accel, "COMPILED", is_compiled)
        return importlib.reload(chosen)

    yield reload
    monkeypatch.undo()
    importlib.reload(chosen)


def test_plain_is_chosen_without_the_kernel(reloaded: Any) -> None:
    kernel = reloaded(is_compiled=False)

    assert kernel.Record is PLAIN.Record
    assert kernel.crc32c is PLAIN.crc32c


def test_the_compiled_kernel_is_chosen_where_it_is_built(reloaded: Any) -> None:
    version = compiled()

    kernel = reloaded(is_compiled=True)

    assert kernel.Record is version.Record
    assert kernel.crc32c is version.crc32c


@pytest.mark.parametrize(
    "name",
    [
        "crc32c",
        "murmur2",
        "partition_for_key",
        "decode_records",
        "find_since",
        "inspect_records",
        "scan_records",
    ],
)
def test_both_versions_have_the_same_signatures(name: str) -> None:
    def parameters(version: Any) -> list[tuple[str, Any]]:
        signature = inspect.signature(getattr(version, name))
        return [(parameter.name, parameter.default) for parameter in signature.parameters.values()]

    assert parameters(compiled()) == parameters(PLAIN)


@pytest.mark.parametrize("name", ["Record", "BatchWriter"])
def test_both_versions_have_the_same_public_names(name: str) -> None:
    def public(version: Any) -> set[str]:
        return {member for member in dir(getattr(version, name)) if not member.startswith("_")}

    assert public(compiled()) == public(PLAIN)
