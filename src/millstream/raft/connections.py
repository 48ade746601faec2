"""Which nodes may be sent to: one request under way to each, a pause after a failure.

The roles ask here before they send. It counts requests and time; sending is the driver's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

    from millstream.protocol.message import Message
    from millstream.raft.effects import Peer


@dataclass(frozen=True, slots=True)
class InFlight:
    """A request that waits for its answer."""

    request_id: int
    peer: Peer
    message: Message
    deadline_ms: int


class Connections:
    """The requests under way, and the nodes that are left alone for a while."""

    __slots__ = ("_backoff_ms", "_by_id", "_by_peer", "_last_id", "_paused_until_ms", "_timeout_ms")

    def __init__(self, timeout_ms: int, backoff_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._backoff_ms = backoff_ms
        self._last_id = 0
        self._by_id: dict[int, InFlight] = {}
        self._by_peer: dict[int, InFlight] = {}
        self._paused_until_ms: dict[int, int] = {}

    def reset(self) -> None:
        """Forget everything: in a new role nobody waits for the answers to the old one."""
        self._by_id.clear()
        self._by_peer.clear()
        self._paused_until_ms.clear()

    def is_ready(self, peer_id: int, now_ms: int) -> bool:
        """Whether a request may go out now."""
        return peer_id not in self._by_peer and not self.is_paused(peer_id, now_ms)

    def is_paused(self, peer_id: int, now_ms: int) -> bool:
        """Whether the last request failed a moment ago."""
        return self._paused_until_ms.get(peer_id, now_ms) > now_ms

    def is_waiting_for(self, *messages: type[Message]) -> bool:
        """Whether a request of one of these kinds is under way, to whomever."""
        return any(isinstance(sent.message, messages) for sent in self._by_id.values())

    def start(self, peer: Peer, message: Message, now_ms: int) -> int:
        """Note a request that goes out; give its id."""
        assert peer.id not in self._by_peer
        self._last_id += 1
        sent = InFlight(self._last_id, peer, message, now_ms + self._timeout_ms)
        self._by_id[sent.request_id] = self._by_peer[peer.id] = sent
        return sent.request_id

    def finish(self, request_id: int) -> InFlight | None:
        """Note an answer; None if nobody waits for it any more."""
        sent = self._by_id.pop(request_id, None)
        if sent is not None:
            del self._by_peer[sent.peer.id]
        return sent

    def fail(self, request_id: int, now_ms: int) -> InFlight | None:
        """Note that there will be no useful answer, and leave the node alone for a while."""
        sent = self.finish(request_id)
        if sent is not None:
            self.pause(sent.peer.id, now_ms)
        return sent

    def pause(self, peer_id: int, now_ms: int) -> None:
        """Leave a node alone for the retry backoff."""
        self._paused_until_ms[peer_id] = now_ms + self._backoff_ms

    def expire(self, now_ms: int) -> list[InFlight]:
        """Give up on the requests whose time is over."""
        late = [sent for sent in self._by_id.values() if sent.deadline_ms <= now_ms]
        for sent in late:
            self.fail(sent.request_id, now_ms)
        for peer_id in [p for p, until in self._paused_until_ms.items() if until <= now_ms]:
            del self._paused_until_ms[peer_id]
        return late

    def next_deadline_ms(self) -> int | None:
        """When `expire` has something to do."""
        deadlines = [sent.deadline_ms for sent in self._by_id.values()]
        return min([*deadlines, *self._paused_until_ms.values()], default=None)

    def choose_ready(self, peers: list[Peer], now_ms: int, random: Random) -> Peer | None:
        """One of the nodes that may be sent to."""
        ready = [peer for peer in peers if self.is_ready(peer.id, now_ms)]
        return random.choice(ready) if ready else None
