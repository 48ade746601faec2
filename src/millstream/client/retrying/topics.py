"""The topics that a record may go to when its handler fails, and their names.

With the group "billing", records of "orders" go to "orders.billing.retry.1", then ".retry.2" and
so on, one topic for each delay, and in the end to "orders.billing.dead". Each group has its own:
what one group cannot handle is no concern of another.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from millstream.errors import InvalidArgument

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record was read: which of the user's topics it is about, after how many failures."""

    topic: str
    stage: int
    """0 in the topic itself, n in its n-th retry topic."""


class RetryTopics:
    """The names, both ways."""

    def __init__(self, topics: tuple[str, ...], group: str, stages: int) -> None:
        self.sources = topics
        self.stages = stages
        self._group = group
        self._places = {
            self.name(topic, stage): Place(topic, stage)
            for topic in topics
            for stage in range(stages + 1)
        }
        names = [*self._places, *(self.dead_letters(topic) for topic in topics)]
        for name in names:
            if not _NAME.fullmatch(name):
                raise InvalidArgument(
                    f"{name!r} cannot be a topic's name: name the retry topics with retry_name=, "
                    "of letters, digits, '.', '_' and '-'"
                )
        if len(set(names)) < (stages + 2) * len(topics):
            raise InvalidArgument(
                f"a topic of {', '.join(topics)} is the retry or dead-letter topic of another; "
                "leave it out, or name the retry topics otherwise with retry_name="
            )

    @property
    def consumed(self) -> tuple[str, ...]:
        """Everything that is read: the topics and their retry topics."""
        return tuple(self._places)

    def name(self, topic: str, stage: int) -> str:
        """The topic of a stage; stage 0 is the topic itself."""
        return f"{topic}.{self._group}.retry.{stage}" if stage else topic

    def dead_letters(self, topic: str) -> str:
        """Where records end that no retry has helped."""
        return f"{topic}.{self._group}.dead"

    def made_for(self, topic: str) -> tuple[str, ...]:
        """The topics that exist for a topic's failures."""
        retries = (self.name(topic, stage) for stage in range(1, self.stages + 1))
        return (*retries, self.dead_letters(topic))

    def place_of(self, name: str) -> Place:
        """What a topic that is consumed is about."""
        return self._places[name]
