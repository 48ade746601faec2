"""`Pace`: when a retrying consumer must poll again, though records of the last poll are left.

A member that does not poll for `max_poll_interval` is put out of its group, and what it has handled
since is handled again by others. It is told the time and what handlers took; it never waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.errors import PollIntervalExceeded

if TYPE_CHECKING:
    from millstream.records.kernel import ConsumerRecord

_NEARLY: Final = 0.9
"""A handler that took this much of the interval leaves no time to commit in."""


class Pace:
    """How long handlers take, compared with the interval between two polls."""

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._polled_ms = 0
        self._longest_ms = 0
        self._slowest_ms = 0
        self._slowest = ""

    def polled(self, now_ms: int) -> None:
        """Records have come."""
        self._polled_ms = now_ms
        self._slowest_ms = 0

    def handled(self, record: ConsumerRecord[Any, Any], took_ms: int) -> None:
        """One of them is done with."""
        self._longest_ms = max(self._longest_ms, took_ms)
        if took_ms > self._slowest_ms:
            self._slowest_ms = took_ms
            self._slowest = f"{record.topic}-{record.partition} at offset {record.offset}"

    def must_poll(self, now_ms: int) -> bool:
        """Whether the next record might not be done in time.

        It may take as long as the longest so far; half of the interval is kept free in any case.
        """
        reserve_ms = max(self._longest_ms, self._interval_ms // 2)
        return now_ms - self._polled_ms + reserve_ms >= self._interval_ms

    def explanation(self) -> PollIntervalExceeded | None:
        """Why the group went on without this member, if a handler of the last poll is the cause."""
        if self._slowest_ms < self._interval_ms * _NEARLY:
            return None
        return PollIntervalExceeded(
            f"the handler took {self._slowest_ms / 1000:g} s for the record {self._slowest}, and "
            f"the group waits for max_poll_interval, {self._interval_ms / 1000:g} s: it gave the "
            "partitions to others, who get the record again. Raise the interval above what the "
            'slowest handler takes: consumer={"max_poll_interval": seconds}'
        )
