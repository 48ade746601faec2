"""A query's progress in topics as offsets of a consumer group, so that `groups describe` shows it.

The group is called as the pipeline and the query are, joined by a dot. It is for looking at: the
query itself goes on from its checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.spark.pipelines.topics import TopicSource, admin_settings
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from millstream.spark.pipelines.assembly import Flow
    from millstream.spark.pipelines.definition import Pipeline

_CLOSE_S: Final = 10.0


def topics_of(pipeline: Pipeline, flow: Flow) -> list[TopicSource]:
    """The topics that a query streams from."""
    found = (pipeline.sources.get(each) for each in pipeline.upstream_of(flow.sink.from_))
    return [each for each in found if isinstance(each, TopicSource) and each.is_streaming]


class OffsetsOfQuery:
    """Commits where the batches of one query end, to the brokers whose topics they are."""

    def __init__(self, group: str, sources: Iterable[TopicSource]) -> None:
        self._group = group
        self._sources: dict[str, list[TopicSource]] = {}
        for each in sources:
            self._sources.setdefault(each.bootstrap_servers or "", []).append(each)
        self._committers: dict[str, Any] = {}

    def commit(self, ends: Mapping[str, Mapping[str, int]]) -> None:
        """A batch is done; returns at once."""
        for brokers, sources in self._sources.items():
            offsets = {
                TopicPartition(topic, int(partition)): offset
                for topic, partitions in ends.items()
                if any(each.reads(topic) for each in sources)
                for partition, offset in partitions.items()
            }
            if offsets:
                self._committer(brokers, sources[0]).tell(offsets)

    def _committer(self, brokers: str, source: TopicSource) -> Any:
        if brokers not in self._committers:
            from millstream.client.admin.admin import Admin
            from millstream.spark.group_offsets import GroupCommitter

            options = {"kafka.bootstrap.servers": brokers, **source.options}
            admin = Admin.from_config(admin_settings(options))
            self._committers[brokers] = GroupCommitter(admin, self._group)
        return self._committers[brokers]

    def close(self) -> None:
        """Commit what waits; a broker that is gone holds up nobody for long."""
        for each in self._committers.values():
            each.close()
        for each in self._committers.values():
            each.wait(_CLOSE_S)
