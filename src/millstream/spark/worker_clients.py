"""Clients that outlive a task: each of Spark's Python workers keeps those that it has used.

Connecting costs more than many a micro-batch takes. Sources borrow a `TopicReader` here, sinks and
dead letters a `Producer`. Only producers without transactions are kept: they are nobody's but their
process's, and remember nothing that a task could rely on.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from millstream.client.consumer.read_topic import TopicReader
from millstream.client.producer.producer import Producer
from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Client: TypeAlias = TopicReader | Producer
C = TypeVar("C", TopicReader, Producer)

KEPT_MAX: Final = 8
"""More kinds and settings than these are rare; the client that was idle longest goes."""

_kept: Final[list[tuple[tuple[type, dict[str, Any]], Client]]] = []


@contextlib.contextmanager
def borrowed(kind: type[C], settings: Mapping[str, Any]) -> Iterator[C]:
    """A client of a kind with these settings, for one task at a time; one that failed is not kept.

    A second task that runs meanwhile in the same worker gets its own.
    """
    name = (kind, dict(settings))
    client = _take(kind, name) or kind.from_config(settings)
    try:
        yield client
    except GeneratorExit:
        _keep(name, client)  # Spark has rows enough.
        raise
    except BaseException:
        close(client, 0)
        raise
    _keep(name, client)


def _take(kind: type[C], name: tuple[type, dict[str, Any]]) -> C | None:
    for index, (kept_as, client) in enumerate(_kept):
        if kept_as == name and isinstance(client, kind):
            del _kept[index]
            # Spark's daemon forks a worker; a client does not outlive that.
            return client if _is_usable(client) else None
    return None


def _is_usable(client: Client) -> bool:
    return not isinstance(client, TopicReader) or client.is_usable


def _keep(name: tuple[type, dict[str, Any]], client: Client) -> None:
    _kept.append((name, client))
    while len(_kept) > KEPT_MAX:
        close(_kept.pop(0)[1], 0)


def close(client: Client, timeout: float | None = None) -> None:
    """End a client that nothing is expected of any more."""
    with contextlib.suppress(MillstreamError):
        if isinstance(client, TopicReader):
            client.close()
        else:
            client.close(timeout)


def close_all() -> None:
    """End all that are kept."""
    while _kept:
        close(_kept.pop()[1])
