"""Keeps the garbage collector of Spark's Python workers from what they have imported.

Spark has each worker collect garbage after every task and every question, and looking at all that
is imported takes 20 ms and more each time. Workers of tasks are forked from our daemon on local
masters, which has done this before; those that plan and end a write never are. The data source and
its parts call `freeze_once` wherever Spark enters them. It does nothing in any other process.
"""

from __future__ import annotations

import gc
import os
from typing import Final

_REUSED: Final = "SPARK_REUSE_WORKER"
"""What Spark sets for workers that stay; only those collect after every task."""

_is_frozen = False


def freeze_once() -> None:
    """What is there now never becomes garbage: call it when the imports are done."""
    global _is_frozen
    if _is_frozen or _REUSED not in os.environ:
        return
    _is_frozen = True
    gc.collect()
    gc.freeze()
