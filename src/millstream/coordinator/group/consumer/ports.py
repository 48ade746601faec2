"""What consumer groups need to know of the cluster; the metadata cache answers it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from millstream.coordinator.group.ports import TopicsView

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class SubscribableTopics(TopicsView, Protocol):
    """The topics that members can be subscribed to, and the settings of groups."""

    @property
    def topics_version(self) -> object:
        """Another object whenever topics or partitions have changed."""
        ...

    def topic_names(self) -> list[str]:
        """The names of all topics."""
        ...

    def partition_racks(self, topic: str) -> Sequence[frozenset[str]]:
        """The racks in which each partition has replicas, by its number."""
        ...

    def group_config(self, group_id: str) -> Mapping[str, str]:
        """What was set for a group."""
        ...
