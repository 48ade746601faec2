"""What the controller needs from the rest of the house: a log to append to, and seams for policy.

`node` brings the answers. Nothing here does anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.controller.decision import RequestContext
    from millstream.metadata.configs import ConfigResource
    from millstream.metadata.records import VersionedRecord


class MetadataLog(Protocol):
    """The end of the metadata log, on the node that leads the quorum.

    The controller is told about commits through `QuorumController.on_committed`.
    """

    def next_offset(self) -> int:
        """Where the next append will begin, unless something else is appended before it."""
        ...

    def append(self, epoch: int, records: Sequence[VersionedRecord]) -> int:
        """Append one batch, all or nothing, and say the offset of its last record.

        NotController if this node does not lead in that epoch, KafkaStorageError while nothing can
        be written. The batch is not committed yet.
        """
        ...

    @property
    def obstacle(self) -> Exception | None:
        """Why nothing can be written at the moment, so that what was appended waits; or None."""
        ...

    def resign(self, epoch: int) -> None:
        """Give up the leadership of that epoch: the controller cannot go on."""
        ...

    @property
    def kraft_version(self) -> int:
        """The level of kraft.version, which raft keeps."""
        ...

    def upgrade_kraft_version(self, epoch: int, level: int, *, validate_only: bool) -> None:
        """Raise kraft.version; InvalidUpdateVersion if that cannot be."""
        ...


class MutationQuota(Protocol):
    """Limits how many partitions a client may create and delete per second."""

    def charge(self, context: RequestContext, mutations: int, *, is_strict: bool) -> int:
        """Take from the client's budget and say for how many ms to throttle it.

        Where the request's version knows the error (`is_strict`) and the budget is used up:
        ThrottlingQuotaExceeded, and nothing is taken.
        """
        ...


class UnlimitedMutations:
    """No quota."""

    def charge(self, context: RequestContext, mutations: int, *, is_strict: bool) -> int:
        """Everybody may."""
        return 0


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic about to be created, for a policy."""

    name: str
    assignments: Mapping[int, Sequence[int]]
    configs: Mapping[str, str]


class CreateTopicPolicy(Protocol):
    """The site's rules for new topics."""

    def check(self, topic: NewTopic) -> None:
        """Raise PolicyViolation with the reason."""
        ...


class AlterConfigPolicy(Protocol):
    """The site's rules for settings."""

    def check(self, resource: ConfigResource, changes: Mapping[str, str | None]) -> None:
        """Raise PolicyViolation with the reason. A change to None removes the setting."""
        ...
