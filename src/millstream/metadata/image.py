"""`MetadataImage`: everything the metadata log says, at one offset, never changing.

Brokers and controllers hold one and replace it when the log moves on (`MetadataDelta`). Unchanged
parts are shared between images, so that keeping several costs little.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from millstream.metadata.acls import AclsImage
from millstream.metadata.client_quotas import ClientQuotasImage
from millstream.metadata.cluster import ClusterImage
from millstream.metadata.configs import ConfigurationsImage
from millstream.metadata.delegation_tokens import DelegationTokensImage
from millstream.metadata.features_image import FeaturesImage
from millstream.metadata.producer_ids import ProducerIdsImage
from millstream.metadata.scram import ScramImage
from millstream.metadata.topics import TopicsImage
from millstream.types import OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class MetadataProvenance:
    """Which records an image is made of: all up to this one."""

    last_offset: int = -1
    last_epoch: int = -1
    last_timestamp_ms: int = -1
    is_batch_aligned: bool = True
    """Whether the last record is the last of its batch: only then can a snapshot end here."""

    @property
    def snapshot_id(self) -> OffsetAndEpoch:
        """The name of a snapshot of the image: its end, exclusive."""
        return OffsetAndEpoch(self.last_epoch, self.last_offset + 1)


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """All metadata of the cluster."""

    provenance: MetadataProvenance = field(default_factory=MetadataProvenance, compare=False)
    features: FeaturesImage = field(default_factory=FeaturesImage)
    cluster: ClusterImage = field(default_factory=ClusterImage)
    topics: TopicsImage = field(default_factory=TopicsImage)
    configs: ConfigurationsImage = field(default_factory=ConfigurationsImage)
    client_quotas: ClientQuotasImage = field(default_factory=ClientQuotasImage)
    producer_ids: ProducerIdsImage = field(default_factory=ProducerIdsImage)
    acls: AclsImage = field(default_factory=AclsImage)
    scram: ScramImage = field(default_factory=ScramImage)
    delegation_tokens: DelegationTokensImage = field(default_factory=DelegationTokensImage)

    @property
    def metadata_version(self) -> int:
        """What records may be written."""
        return self.features.metadata_version


EMPTY_IMAGE: Final = MetadataImage()
"""Before the first record."""
