"""`SharedBatch`: what several decisions of one partition write together.

The runtime opens one when a decision may wait, and writes it at the end of the loop's turn, or as
soon as somebody else wants to decide in that partition. Until then nothing of it is in the log or
replayed, so if the write fails there is nothing to undo.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from millstream.coordinator.batches import encode_record
from millstream.records import RecordBatchBuilder

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.coordinator.decision import CoordinatorRecord, Decision
    from millstream.errors import ApiError
    from millstream.protocol.records_framing import CoordinatorRecords

_logger = logging.getLogger(__name__)

SHARED_BYTES_MAX: Final = 64 << 10
"""More is written at once: who came first is not to wait for ever more others."""
_RECORD_OVERHEAD: Final = 32
"""More than a record needs besides its key and value."""
_BATCH_OVERHEAD: Final = 128


class SharedBatch:
    """Records of several decisions, and who waits for them."""

    __slots__ = ("_builder", "_codec", "_room", "_waiting", "records")

    def __init__(self, codec: CoordinatorRecords, size_max: int) -> None:
        """`size_max` is what the topic takes; a first decision is taken whatever its size."""
        self._codec = codec
        self._builder = RecordBatchBuilder(4096)
        self._room = min(size_max, SHARED_BYTES_MAX) - _BATCH_OVERHEAD
        self._waiting: list[tuple[Callable[[Any], None], object]] = []
        self.records: list[CoordinatorRecord] = []

    def add(self, decision: Decision[Any], wall_ms: int, done: Callable[[Any], None]) -> bool:
        """Take a decision's records, or none of them if there is no room; whether they are in."""
        size = 0
        rows = []
        for record in decision.records:
            key, value = encode_record(self._codec, record)
            size += _RECORD_OVERHEAD + len(key) + (0 if value is None else len(value))
            rows.append((wall_ms, key, value))
        if size > self._room and self.records:
            return False
        self._room -= size
        self._builder.extend(rows)
        self.records += decision.records
        self._waiting.append((done, decision.response))
        return True

    def build(self) -> bytearray:
        """The batch."""
        return bytearray(self._builder.build())

    def complete(self, error: ApiError | None) -> None:
        """All of it is committed, or cannot be: answer, in the order of the decisions."""
        for done, response in self._waiting:
            try:
                done(response if error is None else error)
            except Exception:
                # The others are not to wait for ever because of one answer.
                _logger.exception("an answer could not be given")
