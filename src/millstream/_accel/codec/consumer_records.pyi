from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from millstream._accel.codec.consumer_record import ConsumerRecord as ConsumerRecord
from millstream.types import Headers, ReadableBuffer

_LegacyBody: TypeAlias = tuple[bytes, int, int, int, int | None]

class FetchedBatches:
    def __init__(
        self,
        data: ReadableBuffer,
        topic: str,
        partition: int,
        position: int,
        *,
        decompress: Callable[[int, memoryview], ReadableBuffer],
        read_legacy: Callable[[memoryview, bool], _LegacyBody],
        check_crc: bool = True,
        aborted: Sequence[tuple[int, int]] | None = None,
        key_deserializer: Callable[[str, bytes, Headers], Any] | None = None,
        value_deserializer: Callable[[str, bytes, Headers], Any] | None = None,
    ) -> None: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def end_epoch(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def is_empty(self) -> bool: ...
    @property
    def is_cut_off(self) -> bool: ...
    def take(self, count: int) -> list[ConsumerRecord]: ...
    def take_arrow(self, builder: Any, byte_limit: int, to_offset: int = ...) -> int: ...
