"""Publishers: what is told when the metadata changes, and how."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from millstream.metadata.delta import MetadataDelta
    from millstream.metadata.image import MetadataImage, MetadataProvenance


class ManifestKind(Enum):
    """Where a change came from."""

    LOG_DELTA = "log"
    SNAPSHOT = "snapshot"
    """A snapshot was loaded, or the publisher is new and gets everything at once."""


@dataclass(frozen=True, slots=True)
class LeaderAndEpoch:
    """Who leads the metadata quorum; None when nobody is known to."""

    leader_id: int | None = None
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class LoaderManifest:
    """The circumstances of a publication."""

    kind: ManifestKind
    provenance: MetadataProvenance
    leader: LeaderAndEpoch
    batch_count: int = 0
    byte_count: int = 0


class MetadataPublisher(Protocol):
    """Takes images as they come. Called on the loader's thread, in the order of installation.

    The first publication that a publisher sees is complete: its delta starts from nothing.
    """

    @property
    def name(self) -> str:
        """For fault reports."""
        ...

    def publish(self, delta: MetadataDelta, image: MetadataImage, manifest: LoaderManifest) -> None:
        """The metadata is now `image`; `delta` says what changed."""
        ...

    def leader_changed(self, leader: LeaderAndEpoch) -> None:
        """The quorum has another leader."""
        ...

    def close(self) -> None:
        """Nothing more will come."""
        ...
