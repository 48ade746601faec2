"""The shipped test kit: an embedded broker, and fakes that pass the same tests as the real things.

`EmbeddedBroker`, `EmbeddedCluster` and `ManualClock` can be imported from here, and are loaded when
they are first asked for; everything else from its module. Nothing of it is imported by Millstream
itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.clock import ManualClock
    from millstream.testing.cluster import EmbeddedCluster
    from millstream.testing.embedded import EmbeddedBroker

__all__ = ["EmbeddedBroker", "EmbeddedCluster", "ManualClock"]

_MODULES = {
    "EmbeddedBroker": "millstream.testing.embedded",
    "EmbeddedCluster": "millstream.testing.cluster",
    "ManualClock": "millstream.clock",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
