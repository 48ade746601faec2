"""How many files and sockets the process may have open, and how many of them are kept for files.

`server start` raises the limit as far as it may. Acceptors leave a reserve: connections that come
when only that is left wait, so that clients cannot take the broker its logs.
"""

from __future__ import annotations

import os
import resource
from typing import Final

ENOUGH: Final = 4096
"""With fewer, a broker is easily short of them."""
_WANTED_MAX: Final = 1 << 20
_RESERVE_SHARE: Final = 8
_RESERVE_MAX: Final = 1024


def raise_limit() -> int:
    """Let this process have as many descriptors as the system allows it; how many that are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_MAX if hard == resource.RLIM_INFINITY else min(hard, _WANTED_MAX)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        return soft
    return wanted


class DescriptorReserve:
    """Tells when only the descriptors are left that logs need.

    The system gives the lowest number that is free, so a number near the limit says that nearly
    all below it are taken: nothing has to be counted.
    """

    __slots__ = ("_first_reserved",)

    def __init__(self) -> None:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit == resource.RLIM_INFINITY:
            limit = 1 << 62
        self._first_reserved = limit - min(limit // _RESERVE_SHARE, _RESERVE_MAX)

    def has(self, descriptor: int) -> bool:
        """Whether a descriptor is one of the reserve."""
        return descriptor >= self._first_reserved

    def is_reached(self, descriptor: int) -> bool:
        """Whether the next one would be, to be asked with any that is open."""
        try:
            next_one = os.dup(descriptor)
        except OSError:
            return True
        os.close(next_one)
        return self.has(next_one)
