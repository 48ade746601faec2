"""What an asker may do, as bits: the answer to `include...authorized_operations`.

There is no authorizer yet, so everybody may do everything that a resource knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = 3, 4, 5, 6, 7, 8
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = 9, 10, 11, 12


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS: Final = _bits(
    _READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS
)
"""Everything that can be done with a topic."""

GROUP_OPERATIONS: Final = _bits(_READ, _DELETE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
"""Everything that can be done with a group."""

CLUSTER_OPERATIONS: Final = _bits(
    _CREATE,
    _ALTER,
    _DESCRIBE,
    _CLUSTER_ACTION,
    _DESCRIBE_CONFIGS,
    _ALTER_CONFIGS,
    _IDEMPOTENT_WRITE,
)
"""Everything that can be done with a cluster."""


class DescribedGroup(Protocol):
    """A group in an answer, of any kind."""

    error_code: int
    authorized_operations: int


def tell_group_operations(groups: Iterable[DescribedGroup]) -> None:
    """Add to each group that could be described what the asker may do with it."""
    for group in groups:
        if not group.error_code:
            group.authorized_operations = GROUP_OPERATIONS
