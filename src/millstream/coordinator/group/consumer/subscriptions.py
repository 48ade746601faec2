"""Which topics members mean, and how to notice that these have changed."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

from millstream.coordinator.patterns import compile_pattern
from millstream.metadata.topic_names import INTERNAL_TOPICS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from millstream.coordinator.group.consumer.member import ConsumerMember
    from millstream.coordinator.group.consumer.ports import SubscribableTopics

compiled = lru_cache(maxsize=256)(compile_pattern)
"""The expressions of the last clients: each heartbeat of a member would compile its own again."""


def matching_topics(regex: str, topics: SubscribableTopics) -> frozenset[str]:
    """The topics that an expression matches; never the brokers' own."""
    pattern = compiled(regex)
    return frozenset(
        name
        for name in topics.topic_names()
        if name not in INTERNAL_TOPICS and pattern.fullmatch(name) is not None
    )


def topics_of(
    names: Iterable[str], regex: str | None, regexes: Mapping[str, frozenset[str]]
) -> frozenset[str]:
    """The topics that a member means, with what expressions match."""
    if regex is None:
        return frozenset(names)
    return regexes.get(regex, frozenset()).union(names)


def subscribed_topics(
    members: Iterable[ConsumerMember], regexes: Mapping[str, frozenset[str]]
) -> set[str]:
    """The topics that some members mean."""
    # Most members want the same.
    asked = {(each.subscription.topics, each.subscription.regex) for each in members}
    return {name for names, regex in asked for name in topics_of(names, regex, regexes)}


def metadata_hash(names: Iterable[str], topics: SubscribableTopics) -> int:
    """A number that is another one when partitions of the topics come, go or move."""
    digest = blake2b(digest_size=8)
    has_any = False
    for name in sorted(names):
        topic_id, count = topics.topic_id(name), topics.partition_count(name)
        if topic_id is None or count is None:
            continue
        has_any = True
        racks = [sorted(each) for each in topics.partition_racks(name)]
        digest.update(repr((name, bytes(topic_id), count, racks)).encode())
    return int.from_bytes(digest.digest(), "big", signed=True) if has_any else 0
