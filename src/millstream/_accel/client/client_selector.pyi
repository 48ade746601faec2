from collections.abc import Callable, Iterable, Sequence
from typing import Any

from millstream.types import ReadableBuffer

class SelectorCore:
    def __init__(
        self,
        connected: Callable[[int], Any],
        received: Callable[[int, ReadableBuffer], Any],
        disconnected: Callable[[int, list[int], int], Any],
        repeated: Callable[[int, int, int, int], Any],
        dispatched: Callable[[int, int, int], Any],
        *,
        frame_bytes_max: int,
        received_bytes_max: int,
        transports: object | None = None,
    ) -> None: ...
    def begin(self, connection_id: int) -> int: ...
    def give_addresses(
        self,
        connection_id: int,
        serial: int,
        addresses: Iterable[tuple[int, tuple[str, int] | tuple[str, int, int, int]]],
    ) -> None: ...
    def send(self, connection_id: int, parts: Sequence[ReadableBuffer]) -> None: ...
    def close(self, connection_id: int) -> None: ...
    def repeat(
        self, connection_id: int, periodic_id: int, periodic: tuple[bytes, int, int, int, int]
    ) -> None: ...
    def cancel(self, periodic_id: int) -> None: ...
    def poll(self, timeout_ms: int | None) -> list[Any]: ...
    def wake(self) -> None: ...
    def shutdown(self) -> None: ...
