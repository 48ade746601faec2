"""Who of a group reads what, as the coordinator computes it for groups of KIP-848.

An assignor is a function from members and topics to partitions. It knows nothing of epochs or of
who still has to let go: that is reconciled afterwards.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from millstream.coordinator.group.assignors.range import assign_range
from millstream.coordinator.group.assignors.uniform import assign_uniformly

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.coordinator.group.assignors.problem import Assignor

ASSIGNORS: Mapping[str, Assignor] = MappingProxyType(
    {"uniform": assign_uniformly, "range": assign_range}
)
"""By the names that clients and settings use."""
