"""The process from which Spark forks its Python workers, with all imports done before the fork.

`sessions` names this module to Spark on local masters. A worker forked from it starts in
milliseconds instead of a second, and finds nothing to look at when Spark collects garbage after
every task. What it imports is only a matter of speed: a module that is missing here fails where it
is needed.
"""

from __future__ import annotations

import gc
from contextlib import suppress
from importlib import import_module

PRELOADED = (
    "pandas",
    "pyarrow",
    "pyarrow.compute",
    "pyspark.worker",
    "pyspark.sql.pandas.serializers",
    "millstream.spark.datasource",
    "millstream.spark.source.partition_reader",
    "millstream.spark.sink.writer",
)
"""What workers of our source and sink use. Nothing of it starts a thread when imported."""


def preload() -> None:
    """Import it, and keep the garbage collector from ever looking at it again."""
    for name in PRELOADED:
        with suppress(ImportError):
            import_module(name)
    gc.collect()
    gc.freeze()


def main() -> None:
    """Preload, then serve forks as Spark's own daemon does."""
    from pyspark import daemon

    preload()
    daemon.manager()


if __name__ == "__main__":
    main()
