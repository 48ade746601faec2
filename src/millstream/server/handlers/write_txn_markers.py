"""WriteTxnMarkers 1-2: a transaction coordinator ends transactions in partitions led here."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from millstream.coordinator.decision import ProducerStamp
from millstream.errors import NO_ERROR, ApiError
from millstream.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from millstream.server.txn_markers import Marker
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.protocol.messages.write_txn_markers import (
        WritableTxnMarker,
        WriteTxnMarkersRequest,
    )
    from millstream.server.exchange import Exchange
    from millstream.server.txn_markers import MarkerWriter

    _Finished: TypeAlias = Callable[[int, dict[TopicPartition, int]], None]


def handle_write_txn_markers(
    request: WriteTxnMarkersRequest, exchange: Exchange, writer: MarkerWriter
) -> None:
    """Write each marker; answer when all are safe."""
    results: dict[int, dict[TopicPartition, int]] = {}

    def finished(place: int, codes: dict[TopicPartition, int]) -> None:
        results[place] = codes
        if len(results) == len(request.markers):
            exchange.answer(_response(request, results))

    if not request.markers:
        exchange.answer(WriteTxnMarkersResponse())
    for place, marker in enumerate(request.markers):
        _write(place, marker, writer, finished)


def fail_write_txn_markers(
    request: WriteTxnMarkersRequest, error: ApiError, version: int
) -> WriteTxnMarkersResponse:
    """Every partition gets the error."""
    codes = {
        place: dict.fromkeys(_partitions(marker), error.code)
        for place, marker in enumerate(request.markers)
    }
    return _response(request, codes)


def _write(
    place: int, marker: WritableTxnMarker, writer: MarkerWriter, finished: _Finished
) -> None:
    writer.write(
        Marker(
            ProducerStamp(marker.producer_id, marker.producer_epoch),
            marker.coordinator_epoch,
            marker.transaction_result,
            marker.transaction_version,
        ),
        _partitions(marker),
        lambda results: finished(
            place,
            {each: NO_ERROR if error is None else error.code for each, error in results},
        ),
    )


def _partitions(marker: WritableTxnMarker) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, partition)
        for topic in marker.topics
        for partition in topic.partition_indexes
    ]


def _response(
    request: WriteTxnMarkersRequest, results: Mapping[int, Mapping[TopicPartition, int]]
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=partition,
                                error_code=results[place][TopicPartition(topic.name, partition)],
                            )
                            for partition in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for place, marker in enumerate(request.markers)
        ]
    )
