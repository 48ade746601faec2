"""Error codes, wherever they are in a message."""

from __future__ import annotations

from millstream.protocol.error_codes import error_codes
from millstream.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from millstream.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


def test_codes_of_the_whole_of_topics_and_of_partitions() -> None:
    partitions = [PartitionData(error_code=3), PartitionData(diverging_epoch=EpochEndOffset())]
    response = FetchResponse(
        error_code=1, responses=[FetchableTopicResponse(partitions=partitions)]
    )

    assert sorted(error_codes(response)) == [0, 1, 3]


def test_lists_of_numbers_have_none() -> None:
    partition = MetadataResponsePartition(error_code=5, replica_nodes=[1, 2])
    topic = MetadataResponseTopic(error_code=0, partitions=[partition])

    assert sorted(error_codes(MetadataResponse(topics=[topic]))) == [0, 0, 5]
