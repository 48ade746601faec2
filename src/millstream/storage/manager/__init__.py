"""All the logs of a broker: their directories and checkpoints, their start, stop and upkeep."""

from __future__ import annotations
