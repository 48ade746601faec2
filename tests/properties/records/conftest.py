"""The `kernel` fixture, for every test of records here."""

from __future__ import annotations

from tests.unit.records.kernels import kernel

__all__ = ["kernel"]
