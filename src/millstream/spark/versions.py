"""Which PySpark there is, and whether it will do.

`sessions` asks before it starts Spark, `datasource` for sessions that were made in another way.
Nothing of PySpark but its version is looked at here.
"""

from __future__ import annotations

from importlib import import_module

from millstream.errors import InvalidArgument

PYSPARK_MIN = (4, 2)
"""The oldest PySpark whose data sources can do all that ours need."""


def require_pyspark(who: str) -> None:
    """InvalidArgument if PySpark is absent or too old for `who`, with what to do about it."""
    needed = "{} needs PySpark {}.{} or newer".format(who, *PYSPARK_MIN)
    try:
        import_module("pyspark.sql")  # A directory that pip left behind has none.
        from pyspark import __version__
    except ImportError as error:
        raise InvalidArgument(f"{needed}: pip install 'millstream[spark]'") from error
    if tuple(int(part) for part in __version__.split(".")[:2]) < PYSPARK_MIN:
        raise InvalidArgument(
            f"{needed}, found {__version__}: pip install --upgrade 'millstream[spark]'"
        )
