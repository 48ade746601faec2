"""What a coordinator's state machine is asked with and answers with. Nothing here does anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.errors import ApiError
    from millstream.protocol.message import Message

T = TypeVar("T")


class Moment(NamedTuple):
    """The time, by both clocks, as a state machine is told it."""

    now_ms: int
    """Monotonic: for deadlines."""
    wall_ms: int
    """Since 1970: for timestamps that are stored."""


class Caller(NamedTuple):
    """Who sent a request, and in which version of its API."""

    client_id: str
    client_host: str
    version: int


class ProducerStamp(NamedTuple):
    """The producer in whose transaction records are written."""

    producer_id: int
    producer_epoch: int


class CoordinatorRecord(NamedTuple):
    """A record to write; a value of None deletes the key."""

    key: Message
    value: Message | None
    version: int = 0
    """The version of the value."""
    encoded: tuple[bytes, bytes | None] | None = None
    """Both as bytes, of kinds of records that are written so often that it pays."""


class Decision(NamedTuple, Generic[T]):
    """What a state machine has decided."""

    response: T
    """Given to the caller once all that was decided so far is committed."""
    records: Sequence[CoordinatorRecord] = ()
    on_committed: Callable[[ApiError | None], None] | None = None
    """Called when the records are committed, or with why they are not."""
    is_replayed: bool = True
    """False if the state machine has changed its state already, as classic groups do."""
    is_atomic: bool = True
    """False if the records may be spread over several batches, as those of a cleanup may."""
    may_wait: bool = False
    """Whether the records may be written, and replayed, with those of other decisions of this turn.

    Only if nothing that such a decision looks at is changed by such records: offset commits.
    """
