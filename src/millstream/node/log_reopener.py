"""Opens the logs that had no room or no descriptor when the metadata asked for them.

`BrokerServer` installs one behind the replicas and the coordinators. Its timer exists only while
there are such logs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from millstream.clock import Clock
    from millstream.metadata.delta import MetadataDelta
    from millstream.metadata.image import MetadataImage
    from millstream.metadata.publisher import LeaderAndEpoch, LoaderManifest
    from millstream.node.coordinator_publisher import CoordinatorPublisher
    from millstream.node.publishers import ReplicaPublisher
    from millstream.node.timers import Timers
    from millstream.replica.replica_changes import ReplicaChanges

RETRY_MS: Final = 1000


class LogReopener:
    """A publisher that comes back to what could not be done."""

    name = "logs to be opened"

    def __init__(
        self,
        changes: ReplicaChanges,
        replicas: ReplicaPublisher,
        coordinators: CoordinatorPublisher,
        clock: Clock,
        timers: Timers,
    ) -> None:
        """The other two hear of every partition that has its log at last."""
        self._changes = changes
        self._replicas = replicas
        self._coordinators = coordinators
        self._clock = clock
        self._alarm = timers.alarm(self._reopen)

    def publish(self, delta: MetadataDelta, image: MetadataImage, manifest: LoaderManifest) -> None:
        """See whether some log could not be opened."""
        if self._changes.unopened:
            self._alarm.advance(self._clock.monotonic_ms() + RETRY_MS)

    def leader_changed(self, leader: LeaderAndEpoch) -> None:
        """Logs do not depend on it."""

    def close(self) -> None:
        """Try no more."""
        self._alarm.set(None)

    def _reopen(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for name, opened in self._changes.reopen(now_ms).items():
            self._replicas.report_directory(name, opened.local)
            if opened.leads:
                self._coordinators.elect(name, opened.local)
        if self._changes.unopened:
            self._alarm.set(now_ms + RETRY_MS)
