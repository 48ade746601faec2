"""Share sessions: which partitions a member fetches, from one request to the next.

The handlers of ShareFetch and ShareAcknowledge open one here for every request. A session is a
member's on one connection: it goes with the member, with the connection, or with its last epoch.
Rule 7 of section 6.10 of the facts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.errors import (
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable
    from typing import TypeAlias

    from millstream.types import Uuid

    Place: TypeAlias = tuple[Uuid, int]
    """A partition: the id of its topic and its number."""

INITIAL_EPOCH: Final = 0
"""Opens a session."""
FINAL_EPOCH: Final = -1
"""Closes a session."""
_EPOCH_MAX: Final = (1 << 31) - 1


class SessionKey(NamedTuple):
    """Whose session it is."""

    group_id: str
    member_id: str


class ShareSession:
    """The partitions that a member fetches."""

    __slots__ = ("connection", "epoch", "key", "partitions")

    def __init__(self, key: SessionKey, connection: Hashable) -> None:
        self.key = key
        self.connection = connection
        self.epoch = INITIAL_EPOCH + 1
        """The epoch of the next request."""
        self.partitions: dict[Place, None] = {}

    def update(self, added: Iterable[Place], forgotten: Iterable[Place]) -> None:
        """Fetch other partitions from now on."""
        self.partitions.update(dict.fromkeys(added))
        for place in forgotten:
            self.partitions.pop(place, None)

    def in_turn(self) -> list[Place]:
        """The partitions; every request begins with another one, so that none starves."""
        places = list(self.partitions)
        if not places:
            return places
        turn = self.epoch % len(places)
        return places[turn:] + places[:turn]


class ShareSessionCache:
    """All share sessions of a broker."""

    def __init__(self, sessions_max: int) -> None:
        self._sessions_max = sessions_max
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_connection: dict[Hashable, dict[SessionKey, None]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, key: SessionKey, epoch: int, connection: Hashable) -> ShareSession:
        """The session of a request, one epoch further; raises if it has no such session.

        With the last epoch the session is left as it is: the caller closes it.
        """
        if epoch == INITIAL_EPOCH:
            return self._create(key, connection)
        session = self._sessions.get(key)
        if session is None:
            raise ShareSessionNotFound(f"{key.member_id} of {key.group_id} has no share session")
        if epoch == FINAL_EPOCH:
            return session
        if epoch != session.epoch:
            raise InvalidShareSessionEpoch(
                f"the share session of {key.member_id} is at epoch {session.epoch}, not {epoch}"
            )
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        return session

    def _create(self, key: SessionKey, connection: Hashable) -> ShareSession:
        self.close(key)
        if len(self._sessions) >= self._sessions_max:
            raise ShareSessionLimitReached(
                f"this broker has {self._sessions_max} share sessions already"
            )
        session = self._sessions[key] = ShareSession(key, connection)
        self._by_connection.setdefault(connection, {})[key] = None
        return session

    def close(self, key: SessionKey) -> ShareSession | None:
        """Forget a session."""
        session = self._sessions.pop(key, None)
        if session is not None:
            keys = self._by_connection[session.connection]
            del keys[key]
            if not keys:
                del self._by_connection[session.connection]
        return session

    def is_open(self, session: ShareSession) -> bool:
        """Whether a session has not ended, and no other has taken its place."""
        return self._sessions.get(session.key) is session

    def of_connection(self, connection: Hashable) -> list[SessionKey]:
        """The sessions that end with a connection."""
        return list(self._by_connection.get(connection, ()))

    def has_group(self, group_id: str) -> bool:
        """Whether a member of a group has a session."""
        return any(key.group_id == group_id for key in self._sessions)
