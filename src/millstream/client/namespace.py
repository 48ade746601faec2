"""`Namespace`: a prefix on the names of topics, groups and transactional ids of one client.

With `namespace="staging"` a client's topic "orders" is "staging.orders" on the wire, so that
several users share a cluster and cannot mix. The clients (Producer, Consumer, Admin) translate
where names come in and go out; everything below has the names of the wire. A name without the
prefix does not exist for the client.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeVar

from millstream.client.arguments import as_partition, as_partitions
from millstream.errors import InvalidArgument
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

T = TypeVar("T")

_LEGAL: Final = re.compile(r"[A-Za-z0-9_-]{1,100}", re.ASCII)


class Namespace:
    """Translates the user's names to those of the wire and back; without a name, changes none."""

    __slots__ = ("prefix",)

    def __init__(self, name: str | None = None) -> None:
        if name is not None and not _LEGAL.fullmatch(name):
            raise InvalidArgument(f"namespace={name!r}: must be 1 to 100 letters, digits, _ or -")
        self.prefix = "" if name is None else f"{name}."

    # ---- names of topics, groups and transactional ids ----

    def to_wire(self, name: str) -> str:
        """A topic, group or transactional id as the brokers know it."""
        if not isinstance(name, str):
            raise InvalidArgument(f"a name is a str, not {name!r}")
        return self.prefix + name

    def from_wire(self, name: str) -> str | None:
        """The user's name of it; None if it belongs to another namespace."""
        return name[len(self.prefix) :] if name.startswith(self.prefix) else None

    def shown(self, name: str) -> str:
        """The user's name of it; the wire's if it belongs to another namespace."""
        return name.removeprefix(self.prefix)

    def is_visible(self, wire_name: str) -> bool:
        """Whether it belongs to this namespace."""
        return wire_name.startswith(self.prefix)

    # ---- partitions ----

    def partition_to_wire(self, partition: TopicPartition) -> TopicPartition:
        """A partition as brokers know it; what the user gave may be a plain tuple."""
        given = as_partition(partition)
        if not self.prefix:
            return given
        return TopicPartition(self.to_wire(given.topic), given.partition)

    def partition_from_wire(self, partition: TopicPartition) -> TopicPartition:
        """A partition as the user knows it."""
        if not self.prefix:
            return partition
        return TopicPartition(self.shown(partition.topic), partition.partition)

    def partitions_to_wire(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Several partitions as brokers know them."""
        return [self.partition_to_wire(each) for each in as_partitions(partitions)]

    def keys_to_wire(self, given: Mapping[TopicPartition, T]) -> dict[TopicPartition, T]:
        """A mapping by partition, as brokers know those."""
        return {self.partition_to_wire(each): value for each, value in given.items()}

    def keys_from_wire(self, found: Mapping[TopicPartition, T]) -> dict[TopicPartition, T]:
        """A mapping by partition, as the user knows those."""
        return {self.partition_from_wire(each): value for each, value in found.items()}
