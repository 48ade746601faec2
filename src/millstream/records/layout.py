"""Where each field of a record batch header is, in numbers.

The header of a v2 batch has 61 bytes, big-endian. Everything from `ATTRIBUTES_AT` on is under the
checksum; base offset and leader epoch are not, so a leader may set them without touching it.
Offsets, sizes, struct formats and bits only: no behaviour lives here.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct

BASE_OFFSET_AT = 0
LENGTH_AT = 8
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
LAST_OFFSET_DELTA_AT = 23
BASE_TIMESTAMP_AT = 27
MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43
PRODUCER_EPOCH_AT = 51
BASE_SEQUENCE_AT = 53
RECORD_COUNT_AT = 57
HEADER_SIZE = 61

LOG_OVERHEAD = 12
"""Base offset and length: what comes before the bytes that the length counts."""

LENGTH_MIN = HEADER_SIZE - LOG_OVERHEAD
"""A shorter v2 batch cannot hold its own header."""

BATCH_SIZE_MAX = 2**31 - 1
"""The largest batch, header included."""

MAGIC = 2
"""The format that is written. 0 and 1 are only read (`legacy`)."""

HEADER = Struct(">qiibIhiqqqhii")
"""The whole header."""

UNCHECKED_HEADER = Struct(">qiibI")
"""Base offset, length, leader epoch, magic and the checksum itself."""

CHECKED_HEADER = Struct(">hiqqqhii")
"""Attributes, last offset delta, both timestamps, producer id, epoch, sequence, record count."""

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1


class TimestampType(IntEnum):
    """Who set the timestamps of a batch: the two values of its attribute bit."""

    CREATE_TIME = 0
    """The producer, record by record."""
    LOG_APPEND_TIME = 1
    """The broker, one for all records."""
