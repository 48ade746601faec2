"""What a decision is: records to write and the answer that waits for them.

Every `*_control` module returns these; `QuorumController` carries them out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from millstream.protocol.message import Message

R_co = TypeVar("R_co", covariant=True)

RECORDS_PER_BATCH_MAX: Final = 10_000
"""How many records one batch may have: what one request may change at most."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Who asks, when, and in which version."""

    principal: str = "User:ANONYMOUS"
    now_ms: int = 0
    """Monotonic: for sessions and deadlines."""
    wall_ms: int = 0
    """Since 1970: for what is stored."""
    version: int = 0
    client_id: str = ""
    client_host: str = ""
    """The address of the client that asks; empty if a node asks for itself."""


@dataclass(frozen=True, slots=True)
class Decision(Generic[R_co]):
    """Records in order, and the answer to give when they are committed."""

    response: R_co
    records: list[Message] = field(default_factory=list)
    is_atomic: bool = True
    """Whether all records must be in one batch. What a broker's failure causes may be split."""
