"""The records that the application has been given and has not said enough about.

Used on the application's thread only. What was decided is taken from here with the next poll or
commit and goes to the brokers; what was renewed stays in hand until something final is said of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.client.share_consumer.acknowledgements import AcknowledgeType
from millstream.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet
    from typing import TypeAlias

    from millstream.client.share_consumer.node_session import NodeSession
    from millstream.types import TopicPartition

    Unread: TypeAlias = AbstractSet[tuple[TopicPartition, int]]
    """Partitions and offsets of records that the application has not looked at yet."""

_UNDECIDED: Final = 0
_RENEWED: Final = -1


class Decided(NamedTuple):
    """What became of records of one partition, and whom they came from."""

    session: NodeSession
    partition: TopicPartition
    """By the name of the wire."""
    decisions: Mapping[int, int]


class _Held:
    """The records of one partition that came in one share session."""

    __slots__ = ("offsets", "partition", "session")

    def __init__(self, session: NodeSession, partition: TopicPartition) -> None:
        self.session = session
        self.partition = partition
        self.offsets: dict[int, int] = {}


class InHand:
    """What is with the application."""

    def __init__(self) -> None:
        self._held: dict[TopicPartition, list[_Held]] = {}

    def add(
        self,
        seen_as: TopicPartition,
        session: NodeSession,
        partition: TopicPartition,
        offsets: Iterable[int],
    ) -> None:
        """The application gets records; it sees the partition under the first name."""
        every = self._held.setdefault(seen_as, [])
        if not every or every[-1].session is not session:
            every.append(_Held(session, partition))
        every[-1].offsets.update(dict.fromkeys(offsets, _UNDECIDED))

    def decide(self, seen_as: TopicPartition, offset: int, kind: AcknowledgeType) -> None:
        """The application says what became of a record."""
        for held in reversed(self._held.get(seen_as, [])):
            if offset in held.offsets:
                held.offsets[offset] = kind
                return
        raise InvalidArgument(
            f"the record {seen_as} at offset {offset} is not in hand: it was not given by this "
            "consumer, or was acknowledged before"
        )

    def undecided(self, unread: Unread) -> int:
        """Of how many records nothing was said at all, though the application has seen them."""
        return sum(
            kind == _UNDECIDED and (seen_as, offset) not in unread
            for seen_as, every in self._held.items()
            for held in every
            for offset, kind in held.offsets.items()
        )

    def take_decided(self, *, accepts_rest: bool, unread: Unread) -> list[Decided]:
        """What is to be told to brokers; with `accepts_rest`, silence about a record accepts it.

        Not of records that the application has not looked at yet.
        """
        found: list[Decided] = []
        for seen_as, every in list(self._held.items()):
            for held in every:
                decisions = {
                    offset: int(kind or AcknowledgeType.ACCEPT)
                    for offset, kind in held.offsets.items()
                    if kind > _UNDECIDED
                    or (kind == _UNDECIDED and accepts_rest and (seen_as, offset) not in unread)
                }
                if decisions:
                    found.append(Decided(held.session, held.partition, decisions))
                    _put_away(held, decisions)
            left = [held for held in every if held.offsets]
            if left:
                self._held[seen_as] = left
            else:
                del self._held[seen_as]
        return found

    def clear(self) -> None:
        """Nothing is in hand any more."""
        self._held.clear()


def _put_away(held: _Held, decisions: Mapping[int, int]) -> None:
    for offset, kind in decisions.items():
        if kind == AcknowledgeType.RENEW:
            held.offsets[offset] = _RENEWED
        else:
            del held.offsets[offset]
