"""How Spark finds `format("millstream")` by itself: it looks for modules named `pyspark_*`.

Spark imports this when a session first needs a data source that is written in Python. Nothing else
lives here, and nothing else should import it.
"""

from __future__ import annotations

from millstream.spark.datasource import MillstreamDataSource as DefaultSource

__all__ = ["DefaultSource"]
