"""One member of a classic group: what it said when it joined, and what it waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container
    from typing import TypeAlias

    from millstream.coordinator.group.calls import JoinAnswer, SyncAnswer

    Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
    """Names of protocols, the preferred one first, each with the member's metadata for it."""


class ClassicMember:
    """A member, by its id; compared by identity."""

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_deadline_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        *,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        """Set for a static member, which keeps its place while it is away."""
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.is_new = False
        """Whether it waits for its first generation: then it may expire while it waits."""
        self.session_deadline_ms = 0
        """When it is taken for dead unless it is heard of."""
        self.awaiting_join: JoinAnswer | None = None
        self.awaiting_sync: SyncAnswer | None = None

    @property
    def is_excused(self) -> bool:
        """Whether it need not send heartbeats, since it waits for an answer."""
        return not self.is_new and (
            self.awaiting_join is not None or self.awaiting_sync is not None
        )

    def metadata(self, protocol: str | None) -> bytes:
        """What it said for a protocol; nothing if it does not support it."""
        for name, data in self.protocols:
            if name == protocol:
                return data
        return b""

    def vote(self, candidates: Container[str]) -> str:
        """The candidate that it prefers."""
        return next(name for name, _ in self.protocols if name in candidates)

    def heard_of(self, now_ms: int) -> None:
        """It is alive: its session begins anew. Only for a session that is watched."""
        self.session_deadline_ms = now_ms + self.session_timeout_ms
