"""The `simple` assignor: every partition has a reader, every reader a partition.

With more members than partitions, members share partitions evenly; with fewer, partitions are
spread evenly. Members keep what they have as far as that stays fair. A pure function; topics are
looked at one set of subscribers at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import TypeAlias

    from millstream.types import Uuid

    Assignment: TypeAlias = Mapping[Uuid, frozenset[int]]

NAME: Final = "simple"
"""As ShareGroupDescribe spells it."""


class _Place(NamedTuple):
    topic: Uuid
    partition: int


def assign(
    subscriptions: Mapping[str, frozenset[Uuid]],
    partitions: Mapping[Uuid, Iterable[int]],
    current: Mapping[str, Assignment],
) -> dict[str, Assignment]:
    """Who reads what: by member, the partitions of each topic.

    `subscriptions` are the topics that a member wants, `partitions` what may be assigned of them.
    """
    readers: dict[frozenset[str], list[_Place]] = {}
    for topic in sorted(partitions):
        members = frozenset(each for each, wanted in subscriptions.items() if topic in wanted)
        if members:
            readers.setdefault(members, []).extend(
                _Place(topic, each) for each in sorted(partitions[topic])
            )
    taken: dict[str, dict[Uuid, set[int]]] = {member: {} for member in subscriptions}
    for members, places in readers.items():
        if places:
            for member, owned in _spread(sorted(members), places, current).items():
                for place in owned:
                    taken[member].setdefault(place.topic, set()).add(place.partition)
    return {
        member: {topic: frozenset(owned) for topic, owned in sorted(topics.items())}
        for member, topics in taken.items()
    }


def _spread(
    members: list[str], places: list[_Place], current: Mapping[str, Assignment]
) -> dict[str, set[_Place]]:
    """Spread partitions over members who all want all of them."""
    sharing = -(-len(members) // len(places))
    quota = -(-len(places) // len(members))
    owned: dict[str, set[_Place]] = {member: set() for member in members}
    readers = dict.fromkeys(places, 0)
    for member in members:
        before = current.get(member, {})
        for place in places:
            if (
                len(owned[member]) < quota
                and readers[place] < sharing
                and place.partition in before.get(place.topic, ())
            ):
                owned[member].add(place)
                readers[place] += 1
    _give_everybody_one(owned, readers)
    for place in places:
        if not readers[place]:
            member = min(members, key=lambda each: len(owned[each]))
            owned[member].add(place)
            readers[place] += 1
    _even_out(owned, readers)
    return owned


def _give_everybody_one(owned: dict[str, set[_Place]], readers: dict[_Place, int]) -> None:
    for mine in owned.values():
        if not mine:
            place = min(readers, key=lambda each: readers[each])
            mine.add(place)
            readers[place] += 1


def _even_out(owned: dict[str, set[_Place]], readers: dict[_Place, int]) -> None:
    """Take from who has most: first what another one reads too."""
    while True:
        most = max(owned.values(), key=len)
        least = min(owned.values(), key=len)
        if len(most) - len(least) > 1:
            place = max(most - least, key=lambda each: (readers[each], each))
            most.discard(place)
            least.add(place)
            continue
        shared = [
            (readers[place], place, mine)
            for mine in owned.values()
            if len(mine) > 1
            for place in mine
            if readers[place] > 1
        ]
        if not shared:
            return
        # Somebody had to be given one in a hurry that had a reader: the richer one lets go.
        _, place, mine = max(shared, key=lambda each: (each[0], each[1]))
        mine.discard(place)
        readers[place] -= 1
