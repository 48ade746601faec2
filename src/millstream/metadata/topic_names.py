"""Which names a topic may have, and which topics are the brokers' own."""

from __future__ import annotations

import re
from typing import Final

from millstream.errors import InvalidTopic

NAME_LENGTH_MAX: Final = 249

GROUP_OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
SHARE_STATE_TOPIC: Final = "__share_group_state"
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
INTERNAL_TOPICS: Final = frozenset(
    {GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_STATE_TOPIC}
)
"""Topics that brokers write themselves; Metadata marks them."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def check_topic_name(name: str) -> None:
    """Raise InvalidTopic with what is wrong."""
    if not name:
        raise InvalidTopic("the topic name is empty")
    if name in (".", ".."):
        raise InvalidTopic(f"{name!r} cannot be a topic name")
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidTopic(
            f"the topic name has {len(name)} characters, the limit is {NAME_LENGTH_MAX}"
        )
    if not _LEGAL.fullmatch(name):
        raise InvalidTopic(
            f"topic name {name!r} has a character other than a-z, A-Z, 0-9, '.', '_' and '-'"
        )


def collision_key(name: str) -> str:
    """Names with the same key cannot both exist: metric names cannot tell them apart."""
    return name.replace(".", "_")
