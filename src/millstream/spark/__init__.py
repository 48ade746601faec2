"""Spark: `format("millstream")` for topics, sessions tuned for it, and pipelines.

Importing this package imports neither PySpark nor Java: the parts are imported where they are used.
It sees a cluster through `millstream.client` only and knows nothing of the broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.spark.group_offsets import commit_offsets_of as commit_offsets_of
    from millstream.spark.sessions import session as session

_MODULES = {
    "commit_offsets_of": "millstream.spark.group_offsets",
    "session": "millstream.spark.sessions",
}
"""Where each public name lives; it is imported when it is first asked for."""

__all__ = ["commit_offsets_of", "session"]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(_MODULES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
