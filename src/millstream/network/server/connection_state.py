"""What a connection is doing: the one object that compiled and Python code both work on.

A `Connection` has one. Its gate, receiver, sender and liveness keep here what the compiled selector
must know without asking them; `ConnectionState` is the compiled class where the kernel runs, and
`PlainConnectionState` with the same attributes elsewhere. Not thread-safe: one loop, one thread.
"""

from __future__ import annotations

from enum import IntFlag
from typing import TYPE_CHECKING

from millstream import _accel


class FullPath(IntFlag):
    """Why a connection's requests take the full path; with none of these the fast path may answer.

    They hold from the next frame on. Faults that a test plans are not among them: they concern an
    API and not a connection, see `FastHandler.declined_apis`.
    """

    GRANTS = 1
    """It is not known whether its principal may do what it asks for."""
    ALLOWANCE = 2
    """Its quota's bytes are used up."""
    REQUEST_LOG = 4
    """Its requests are logged one by one."""


class PlainConnectionState:
    """The state of a connection that nothing has happened on."""

    __slots__ = (
        "byte_allowance",
        "bytes_in",
        "bytes_out",
        "carried_bytes",
        "deferred",
        "end",
        "full_path",
        "grants_version",
        "in_flight",
        "is_open",
        "last_active_ms",
        "mute_reasons",
        "own",
        "requests",
        "start",
        "turn_frames",
        "unsent_bytes",
    )

    def __init__(self) -> None:
        self.is_open = True
        """Whether answers can be sent still."""
        self.mute_reasons = 0
        """Why it is not read: bits of `Mute`."""
        self.full_path = 0
        """Why its requests take the full path: bits of `FullPath`."""
        self.in_flight = 0
        """How many requests the full path has yet to answer."""
        self.deferred = 0
        """How many answers the fast path has deferred."""
        self.unsent_bytes = 0
        """Output that the peer has yet to take."""
        self.carried_bytes = 0
        """How many received bytes are carried to the next read."""
        self.own: memoryview | None = None
        """The buffer that the connection has for itself while large frames arrive."""
        self.start = 0
        """Where unhandled bytes begin,"""
        self.end = 0
        """and where they end."""
        self.turn_frames = 0
        """How much of its turn is used up, in frames of the fast path."""
        self.last_active_ms = 0
        """By the monotonic clock."""
        self.requests = 0
        """All that were received."""
        self.bytes_in = 0
        self.bytes_out = 0
        self.grants_version = 0
        """Room for ACLs: which version of them was looked at last."""
        self.byte_allowance = 0
        """Room for quotas: how many bytes are allowed yet."""


if TYPE_CHECKING or _accel.find("broker.connection_state") is None:
    ConnectionState = PlainConnectionState
else:
    from millstream._accel.broker.connection_state import ConnectionState

__all__ = ["ConnectionState", "FullPath", "PlainConnectionState"]
