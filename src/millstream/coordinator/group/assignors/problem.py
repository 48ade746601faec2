"""What an assignor is given and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from millstream.types import Uuid

Assignment: TypeAlias = "Mapping[Uuid, frozenset[int]]"
"""Partitions by topic id."""


class MemberNeeds(NamedTuple):
    """One member, as an assignor sees it."""

    topics: frozenset[Uuid]
    """What it is subscribed to."""
    target: Assignment
    """What it was to read so far: it keeps what it can."""
    instance_id: str | None = None
    rack: str | None = None


class Problem(NamedTuple):
    """Members by id, and how many partitions their topics have."""

    members: Mapping[str, MemberNeeds]
    partition_counts: Mapping[Uuid, int]
    racks: Mapping[tuple[Uuid, int], frozenset[str]]
    """Where partitions have replicas; those that are not in it are everywhere alike."""


Assignor: TypeAlias = Callable[[Problem], "dict[str, Assignment]"]
