"""Which brokers are alive, by their heartbeats. Soft state of the active controller.

It is not in the log: a new controller gives every unfenced broker a full session to report to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@dataclass(slots=True)
class _Session:
    epoch: int
    contact_ms: int
    is_heard: bool = False
    metadata_offset: int = -1
    shutdown_offset: int | None = None


class BrokerSessions:
    """The last heartbeat of each broker.

    Where the active controller is the only voter, the broker in its process is alive as long as
    anybody could ask, and knows all that was decided: it need not say so again and again.
    """

    def __init__(
        self,
        timeout_ms: int,
        local_id: int | None = None,
        is_alone: Callable[[], bool] = lambda: True,
    ) -> None:
        """`local_id`: the broker in this process; `is_alone`: no other node could be active."""
        self._timeout_ms = timeout_ms
        self._local_id = local_id
        self._is_alone = is_alone
        self._was_alone = is_alone()
        self._sessions: dict[int, _Session] = {}

    def assume(self, broker_id: int, epoch: int, now_ms: int, shutdown_offset: int | None) -> None:
        """A broker was unfenced when this controller became active: it has time to report.

        If it was shutting down, its leaderships were moved before `shutdown_offset`.
        """
        self._sessions[broker_id] = _Session(epoch, now_ms, shutdown_offset=shutdown_offset)

    def touch(self, broker_id: int, epoch: int, now_ms: int, metadata_offset: int) -> None:
        """A broker of this epoch was heard of; it has applied the log up to `metadata_offset`."""
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != epoch:
            session = self._sessions[broker_id] = _Session(epoch, now_ms)
        session.is_heard = True
        session.contact_ms = max(now_ms, session.contact_ms)
        session.metadata_offset = metadata_offset

    def is_valid(self, broker_id: int, epoch: int, now_ms: int) -> bool:
        """Whether that incarnation was heard of, by this controller, within the timeout.

        An assumed session does not count: on a single node the broker that comes back after a
        crash would otherwise be taken for a second one, and wait for its own session to end.
        """
        session = self._sessions.get(broker_id)
        return (
            session is not None
            and session.is_heard
            and session.epoch == epoch
            and now_ms < session.contact_ms + self._timeout_ms
        )

    def expired(self, broker_ids: Iterable[int], now_ms: int) -> list[int]:
        """Those brokers that were silent for too long, the longest silence first."""
        self._trust_local(now_ms)
        silent = [
            (session.contact_ms, broker_id)
            for broker_id in broker_ids
            if broker_id != self._trusted_id
            and (session := self._sessions.get(broker_id)) is not None
            and now_ms >= session.contact_ms + self._timeout_ms
        ]
        return [broker_id for _, broker_id in sorted(silent)]

    def next_expiry_ms(self, broker_ids: Iterable[int]) -> int | None:
        """When the first of those brokers will have been silent for too long."""
        contacts = [
            self._sessions[broker_id].contact_ms
            for broker_id in broker_ids
            if broker_id in self._sessions and broker_id != self._trusted_id
        ]
        return min(contacts) + self._timeout_ms if contacts else None

    @property
    def _trusted_id(self) -> int | None:
        """The broker that need not be heard of."""
        return self._local_id if self._is_alone() else None

    def _trust_local(self, now_ms: int) -> None:
        """When the quorum grows, the broker in this process has a full session to report."""
        is_alone = self._is_alone()
        local = None if self._local_id is None else self._sessions.get(self._local_id)
        if local is not None and self._was_alone and not is_alone:
            local.contact_ms = max(local.contact_ms, now_ms)
        self._was_alone = is_alone

    def note_shutdown_offset(self, broker_id: int, offset: int) -> None:
        """A broker's leaderships are moved by the records up to this offset."""
        self._sessions[broker_id].shutdown_offset = offset

    def all_have_seen_shutdown_of(self, broker_id: int, active: Iterable[int]) -> bool:
        """Whether every active broker has applied the records that moved the leaderships."""
        session = self._sessions.get(broker_id)
        shutdown_offset = None if session is None else session.shutdown_offset
        if shutdown_offset is None:
            return False
        offsets = (
            other.metadata_offset
            for each in active
            if each not in (broker_id, self._trusted_id)
            and (other := self._sessions.get(each)) is not None
        )
        return min(offsets, default=shutdown_offset) >= shutdown_offset
