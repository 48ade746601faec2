"""Compaction: what to clean, how much of it at a time, and what of a log is kept."""

from __future__ import annotations
