"""A connection for each member of a group, all in one loop: what `coordinator_groups` lets live."""

from __future__ import annotations

import select
import socket
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from typing import TYPE_CHECKING, Generic, TypeVar

from benchmarks.broker_processes import HOST
from millstream.protocol.api import API_BY_KEY
from millstream.protocol.frame import FrameDecoder, decode_response, encode_request
from millstream.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    SyncGroupRequest,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.protocol.message import Message

HEARTBEAT_SECONDS = 0.1
STABLE_SECONDS_MAX = 60
_SEND_BYTES, _RECEIVE_BYTES = 1 << 20, 256 << 10
_VERSIONS = {
    ApiVersionsRequest.KEY: 3,
    JoinGroupRequest.KEY: 9,
    SyncGroupRequest.KEY: 5,
    HeartbeatRequest.KEY: 4,
    ConsumerGroupHeartbeatRequest.KEY: 1,
}


class Member(ABC):
    """One connection; it has one request under way, or pauses."""

    def __init__(self, group_id: str, port: int) -> None:
        self.group_id = group_id
        self.member_id = ""
        self.socket = socket.create_connection((HOST, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The leader of a large group has much to say at once.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)
        self.socket.setblocking(False)
        self.place: tuple[int, object] | None = None
        """The generation or epoch in which it has what it should have, and what that is."""
        self.has_versions = False
        """Whether the broker has said what it can: the first thing that a client asks."""
        self._frames = FrameDecoder()
        self._asked = -1
        self._correlation_id = 0

    def send(self, request: Message) -> None:
        """Ask; the answer comes to `take`."""
        self._asked = request.KEY
        self._correlation_id += 1
        data = encode_request(request, _VERSIONS[request.KEY], self._correlation_id, "bench")
        assert self.socket.send(data) == len(data), "the broker does not read"

    def receive(self) -> bool:
        """Read what has come, and go on; False if there is nothing to say until the next beat."""
        for frame in self._frames.feed(self.socket.recv(_RECEIVE_BYTES)):
            api = API_BY_KEY[self._asked]
            correlation_id, answer = decode_response(frame, api, _VERSIONS[self._asked])
            assert correlation_id == self._correlation_id, "answers out of order"
            if isinstance(answer, ApiVersionsResponse):
                self.has_versions = not answer.error_code
                return True
            return self.take(answer)
        return True

    @abstractmethod
    def begin(self) -> None:
        """Enter the group."""

    @abstractmethod
    def take(self, answer: Message) -> bool:
        """Go on with an answer; False if there is nothing to say until the next heartbeat."""

    @abstractmethod
    def beat(self) -> None:
        """Say that one is there."""


M = TypeVar("M", bound=Member)


class Crowd(Generic[M]):
    """All members of a group, in one loop."""

    def __init__(self, members: Sequence[M]) -> None:
        """Connections are accepted and served, as those of clients are, before the clock runs."""
        self.members = members
        for member in members:
            member.send(
                ApiVersionsRequest(client_software_name="bench", client_software_version="1")
            )
        for member in members:
            while not member.has_versions:
                select.select([member.socket], [], [])
                member.receive()
        self._places: Counter[int] = Counter()
        """How many members have what they should have, by generation or epoch."""

    def settle(self) -> None:
        """Let all enter; returns when all have what they should have, in one generation."""
        by_number = {each.socket.fileno(): each for each in self.members}
        poll = select.epoll()
        for number in by_number:
            poll.register(number, select.EPOLLIN)
        deadline = time.perf_counter() + STABLE_SECONDS_MAX
        pausing: deque[tuple[float, M]] = deque()
        for member in self.members:
            member.begin()
        while not self._is_settled():
            now = time.perf_counter()
            if now > deadline:
                sys.exit(f"not stable after {STABLE_SECONDS_MAX} s: {self._places}")
            while pausing and pausing[0][0] <= now:
                pausing.popleft()[1].beat()
            for number, _ in poll.poll(pausing[0][0] - now if pausing else 1):
                member = by_number[number]
                if not self._received(member):
                    pausing.append((time.perf_counter() + HEARTBEAT_SECONDS, member))
        poll.close()

    def _received(self, member: M) -> bool:
        before = member.place
        goes_on = member.receive()
        if member.place != before:
            if before is not None:
                self._places[before[0]] -= 1
            if member.place is not None:
                self._places[member.place[0]] += 1
        return goes_on

    def _is_settled(self) -> bool:
        return len(self.members) in self._places.values()

    def close(self) -> None:
        """Hang up."""
        for member in self.members:
            member.socket.close()
