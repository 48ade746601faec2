"""Which partition of an internal topic a key belongs to: every broker must find the same."""

from __future__ import annotations

from functools import lru_cache

_INT32_BITS = 32


def java_hash(text: str) -> int:
    """Java's String.hashCode: clients' and brokers' logs of Apache Kafka are laid out by it."""
    result = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(encoded), 2):
        result = (31 * result + (encoded[at] << 8 | encoded[at + 1])) & 0xFFFF_FFFF
    return result - (1 << _INT32_BITS) if result >> (_INT32_BITS - 1) else result


@lru_cache(maxsize=8192)  # The same clients come again and again, and the hash is slow.
def partition_for(key: str, partition_count: int) -> int:
    """The partition that a group, a transactional id or a share partition belongs to."""
    hashed = java_hash(key)
    # The smallest number has no positive counterpart of its size.
    return (0 if hashed == -(1 << (_INT32_BITS - 1)) else abs(hashed)) % partition_count
