"""What a batch was told to keep outlives the machine's power, on disks of this machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def sync(path: str | Path) -> None:
    """Have a file's bytes on disk; or a directory's names, which a rename changes."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
