"""Who votes: replica keys, endpoints, the set of voters and how it changed along the log.

A voter is an id together with the id of its directory (KIP-853), so that a disk that was replaced
is another voter. Values only: who may change a set, and when, is decided in `membership`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from millstream.errors import InvalidArgument
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

T = TypeVar("T")

KRAFT_VERSION_STATIC = 0
"""The voters are those of the configuration, for ever."""

KRAFT_VERSION_DYNAMIC = 1
"""The voters are a record in the log and can be changed."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a node listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, order=True)
class ReplicaKey:
    """Which replica: the node and, where it is known, its directory (`Uuid.ZERO`: not known)."""

    id: int
    directory_id: Uuid = Uuid.ZERO

    @property
    def has_directory(self) -> bool:
        """Whether the directory is known."""
        return self.directory_id != Uuid.ZERO

    def __str__(self) -> str:
        return f"{self.id}:{self.directory_id}" if self.has_directory else str(self.id)


@dataclass(frozen=True, slots=True)
class SupportedVersions:
    """The kraft.versions a node can run."""

    minimum: int = KRAFT_VERSION_STATIC
    maximum: int = KRAFT_VERSION_STATIC

    def __contains__(self, version: int) -> bool:
        return self.minimum <= version <= self.maximum


LOCAL_SUPPORTED_VERSIONS = SupportedVersions(KRAFT_VERSION_STATIC, KRAFT_VERSION_DYNAMIC)
"""What this code can run."""


@dataclass(frozen=True, slots=True)
class Voter:
    """One voter: its key, where it listens (by listener name), what it supports."""

    key: ReplicaKey
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    supported: SupportedVersions = SupportedVersions()

    @property
    def id(self) -> int:
        """The node's id."""
        return self.key.id


class VoterSet:
    """The voters at one place of the log. Never changes; each change makes a new set."""

    __slots__ = ("_by_id",)

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self._by_id: dict[int, Voter] = {}
        for voter in sorted(voters, key=lambda voter: voter.id):
            if voter.id in self._by_id:
                raise InvalidArgument(f"voter {voter.id} occurs twice: give each id once")
            self._by_id[voter.id] = voter

    def __iter__(self) -> Iterator[Voter]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._by_id == other._by_id

    __hash__ = None  # type: ignore[assignment]  # endpoints are mappings and have no hash

    def __repr__(self) -> str:
        return f"VoterSet({', '.join(str(voter.key) for voter in self)})"

    @property
    def ids(self) -> list[int]:
        """The voters' ids, ascending."""
        return list(self._by_id)

    @property
    def majority(self) -> int:
        """How many of them decide."""
        return len(self._by_id) // 2 + 1

    def get(self, node_id: int) -> Voter | None:
        """The voter with an id."""
        return self._by_id.get(node_id)

    def is_voter(self, key: ReplicaKey) -> bool:
        """Whether this replica votes. Where the set knows no directory, the id is enough."""
        voter = self._by_id.get(key.id)
        if voter is None:
            return False
        return not voter.key.has_directory or voter.key.directory_id == key.directory_id

    def is_only_voter(self, key: ReplicaKey) -> bool:
        """Whether this replica decides alone."""
        return len(self._by_id) == 1 and self.is_voter(key)

    def endpoints_of(self, node_id: int) -> Mapping[str, Endpoint]:
        """Where a voter listens; nothing for an id that is no voter."""
        voter = self._by_id.get(node_id)
        return {} if voter is None else voter.endpoints

    def with_voter(self, voter: Voter) -> VoterSet:
        """The set with one voter more; its id must be new."""
        return VoterSet([*self, voter])

    def without_voter(self, key: ReplicaKey) -> VoterSet | None:
        """The set with one voter fewer, or None when that very replica is not in it."""
        if not self.is_voter(key):
            return None
        return VoterSet(voter for voter in self if voter.id != key.id)

    def with_update(self, voter: Voter) -> VoterSet | None:
        """The set with a voter's endpoints and versions renewed, or None when it is not in it."""
        if not self.is_voter(voter.key):
            return None
        return VoterSet(voter if old.id == voter.id else old for old in self)

    def supports(self, version: int) -> bool:
        """Whether each voter could run a kraft.version; from 1 on its directory must be known."""
        return all(
            version in voter.supported
            and (version < KRAFT_VERSION_DYNAMIC or voter.key.has_directory)
            for voter in self
        )


class LogHistory(Generic[T]):
    """A value that records in the log set anew: which value holds at which offset.

    A value counts from the moment its record is in the log, committed or not; truncating the log
    brings the older one back.
    """

    __slots__ = ("_offsets", "_values")

    def __init__(self, initial: T) -> None:
        # The initial value stands before the first record: nothing truncates it.
        self._offsets = [-1]
        self._values = [initial]

    @property
    def last(self) -> T:
        """The value of the newest record."""
        return self._values[-1]

    @property
    def last_offset(self) -> int:
        """Where the newest record is; -1 for the initial value."""
        return self._offsets[-1]

    def at(self, offset: int) -> T:
        """The value after the record at `offset`; the oldest known for offsets before it."""
        return self._values[max(0, bisect_right(self._offsets, offset) - 1)]

    def possible_at(self, high_watermark: int) -> list[T]:
        """The values that may turn out to hold: the committed one and all that are newer."""
        return self._values[max(0, bisect_left(self._offsets, high_watermark) - 1) :]

    def add(self, offset: int, value: T) -> None:
        """A record at the end of the log sets the value."""
        assert offset > self._offsets[-1], f"{offset} after {self._offsets[-1]}"
        self._offsets.append(offset)
        self._values.append(value)

    def truncate_to(self, end_offset: int) -> None:
        """Forget the records at `end_offset` and above."""
        keep = max(1, bisect_left(self._offsets, end_offset))
        del self._offsets[keep:], self._values[keep:]

    def trim_before(self, offset: int) -> None:
        """Forget what only held before `offset`: the log below it is gone."""
        drop = max(0, bisect_right(self._offsets, offset) - 1)
        del self._offsets[:drop], self._values[:drop]

    def reset(self, offset: int, value: T) -> None:
        """Start again from a snapshot whose last contained record is at `offset`."""
        self._offsets, self._values = [offset], [value]
