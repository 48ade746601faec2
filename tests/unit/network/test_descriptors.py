"""The limit of descriptors, and the reserve that connections leave."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from millstream.network.server.descriptors import DescriptorReserve, raise_limit


class Limits:
    """What the system would say."""

    def __init__(self, soft: int, hard: int) -> None:
        self.now = (soft, hard)
        self.is_refusing = False

    def getrlimit(self, _: int) -> tuple[int, int]:
        return self.now

    def setrlimit(self, _: int, limits: tuple[int, int]) -> None:
        if self.is_refusing:
            raise ValueError("not allowed to raise maximum limit")
        self.now = limits


def use(monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> Limits:
    limits = Limits(soft, hard)
    monkeypatch.setattr(resource, "getrlimit", limits.getrlimit)
    monkeypatch.setattr(resource, "setrlimit", limits.setrlimit)
    return limits


@pytest.mark.parametrize(
    ("soft", "hard", "after"),
    [
        (1024, 4096, 4096),
        (4096, 4096, 4096),
        (1024, 1 << 30, 1 << 20),
        (1 << 24, 1 << 30, 1 << 24),
        (256, resource.RLIM_INFINITY, 1 << 20),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 1 << 20),
    ],
)
def test_the_limit_is_raised_as_far_as_it_makes_sense(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, after: int
) -> None:
    limits = use(monkeypatch, soft, hard)

    assert raise_limit() == after

    assert limits.now == (soft if soft == resource.RLIM_INFINITY else after, hard)


def test_a_system_that_refuses_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, 256, resource.RLIM_INFINITY).is_refusing = True

    assert raise_limit() == 256


@pytest.mark.parametrize(
    ("limit", "first"),
    [(100, 88), (1024, 896), (1 << 20, (1 << 20) - 1024), (resource.RLIM_INFINITY, 1 << 61)],
)
def test_the_last_ones_are_for_files(
    monkeypatch: pytest.MonkeyPatch, limit: int, first: int
) -> None:
    use(monkeypatch, limit, resource.RLIM_INFINITY)
    reserve = DescriptorReserve()

    assert not reserve.has(first - 1)
    assert reserve.has(first) is (limit != resource.RLIM_INFINITY)


def test_it_looks_which_one_would_be_next(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path(os.devnull).open() as file:
        assert not DescriptorReserve().is_reached(file.fileno())
        use(monkeypatch, file.fileno(), file.fileno())
        assert DescriptorReserve().is_reached(file.fileno())
    assert DescriptorReserve().is_reached(-1), "none can be had at all"
