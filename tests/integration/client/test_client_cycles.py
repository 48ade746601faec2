"""Clients that are opened and closed many times leave nothing behind.

A short slice of `make cycles`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tools.client_cycles import KINDS, broker, growth

if TYPE_CHECKING:
    from collections.abc import Iterator

CYCLES = 100

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with broker() as running:
        yield running


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_that_comes_and_goes_leaves_nothing(kind: str, address: str) -> None:
    left = growth(kind, address, CYCLES)

    assert not left.is_leak, left
