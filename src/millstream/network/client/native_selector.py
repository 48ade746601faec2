"""The compiled `ClientSelector`: sockets on a thread of their own that never needs the GIL.

`selector_factory` takes it where it was built; `_accel.client.client_selector` says what it does.
Here names are resolved and the ends of connections put into words, the same as `SocketSelector`'s.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from millstream._accel.client.client_selector import SelectorCore
from millstream.errors import ProtocolError
from millstream.network.client.client_socket import CLOSED_BY_BROKER, describe_errno
from millstream.network.client.name_resolution import numeric_addresses, resolve
from millstream.network.client.selector import (
    FRAME_BYTES_MAX,
    Connected,
    Disconnected,
    Dispatched,
    Received,
    Repeated,
)
from millstream.protocol.frame import SIZE_BYTES, cut_frames

if TYPE_CHECKING:
    from millstream.network.client.name_resolution import Resolution

RECEIVED_BYTES_MAX: Final = 64 << 20
"""What may wait for `poll`; beyond it the sockets are not read until `poll` was called."""

_CLOSED_BY_PEER: Final = -1
_FRAME_SIZE: Final = -2


class NativeSelector(SelectorCore):
    """Linux only. One thread uses it; only `wake` may be called from others."""

    def __init__(
        self,
        *,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        received_bytes_max: int = RECEIVED_BYTES_MAX,
        transports: object | None = None,
    ) -> None:
        """`transports`: what is between frames and sockets, see `SelectorCore`; nothing without."""
        # Why a name could not be resolved, until the event says so. By whom is known only here,
        # so the event's maker shares the mapping and not the selector, which it would keep alive.
        self._failures: dict[int, str] = {}
        super().__init__(
            Connected,
            Received,
            partial(_disconnected, frame_bytes_max, self._failures),
            Repeated,
            Dispatched,
            frame_bytes_max=frame_bytes_max,
            received_bytes_max=received_bytes_max,
            transports=transports,
        )

    def connect(self, connection_id: int, host: str, port: int) -> None:
        """See `ClientSelector`. Names are resolved in a thread of their own, it may take long."""
        addresses = numeric_addresses(host, port)
        serial = self.begin(connection_id)
        self._failures.pop(connection_id, None)
        if addresses is not None:
            self.give_addresses(connection_id, serial, addresses)
        else:
            resolve(connection_id, host, port, partial(self._take_resolution, serial))

    def _take_resolution(self, serial: int, resolution: Resolution) -> None:
        """Called by the resolving thread."""
        if resolution.failure:
            self._failures[resolution.connection_id] = resolution.failure
        self.give_addresses(resolution.connection_id, serial, resolution.addresses)


def _disconnected(
    frame_bytes_max: int,
    failures: dict[int, str],
    connection_id: int,
    codes: list[int],
    claimed: int,
) -> Disconnected:
    """The event, with each reason once."""
    reasons = dict.fromkeys(_reason(code, claimed, frame_bytes_max) for code in codes)
    unresolved = failures.pop(connection_id, "the host has no address")
    return Disconnected(connection_id, "; ".join(reasons) or unresolved)


def _reason(code: int, claimed: int, frame_bytes_max: int) -> str:
    if code == _CLOSED_BY_PEER:
        return CLOSED_BY_BROKER
    if code == _FRAME_SIZE:
        try:
            size = claimed.to_bytes(SIZE_BYTES, "big", signed=True)
            cut_frames(size, 0, SIZE_BYTES, frame_bytes_max=frame_bytes_max)
        except ProtocolError as error:
            return str(error)
    return describe_errno(code)
