"""Which broker answers for a group or a transactional id, and asking all of them.

The views of groups and transactions ask through here. Questions are repeated with fresh metadata
while that may help, as `Session.retrying` does.
"""

from __future__ import annotations

from collections import defaultdict
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from millstream.errors import error_for_code
from millstream.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from millstream.cli.message_session import BrokerConnection, Session

T = TypeVar("T")


class CoordinatorKind(IntEnum):
    """What is coordinated, by Kafka's numbers."""

    GROUP = 0
    TRANSACTION = 1


class Peer(NamedTuple):
    """A broker to ask."""

    node_id: int
    connection: BrokerConnection


def ask_coordinators(
    session: Session,
    kind: CoordinatorKind,
    keys: Iterable[str],
    ask: Callable[[Peer, Sequence[str]], Mapping[str, T]],
) -> dict[str, T]:
    """Ask each coordinator about its keys; what they said, in the order of the keys."""
    wanted = list(dict.fromkeys(keys))

    def attempt() -> dict[str, T]:
        theirs: dict[int, list[str]] = defaultdict(list)
        for key, node_id in _find(session, kind, wanted).items():
            theirs[node_id].append(key)
        found: dict[str, T] = {}
        for node_id, some in theirs.items():
            found |= ask(Peer(node_id, session.broker(node_id)), some)
        return {key: found[key] for key in wanted if key in found}

    return session.retrying(attempt)


def ask_brokers(session: Session, ask: Callable[[Peer], Iterable[T]]) -> list[T]:
    """Ask every broker; all answers."""

    def attempt() -> list[T]:
        peers = [Peer(each, session.broker(each)) for each in sorted(session.refresh().brokers)]
        return [answer for peer in peers for answer in ask(peer)]

    return session.retrying(attempt)


def _find(session: Session, kind: CoordinatorKind, keys: list[str]) -> dict[str, int]:
    if not keys:
        return {}
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=keys)
    response = session.call(request, FindCoordinatorResponse)
    for each in response.coordinators:
        if each.error_code:
            raise error_for_code(each.error_code, each.error_message)
    return {each.key: each.node_id for each in response.coordinators}
