"""One partition's log: its segments and indexes, what it appends and reads, what it remembers."""

from __future__ import annotations
