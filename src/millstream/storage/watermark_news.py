"""Whether somebody looks after high watermarks from time to time, or has to be woken for it.

The logs of a `LogManager` share one. While it is awake a log that moves its high watermark does no
more than look here; the first that moves one after a quiet time wakes the task that writes them
down. So a broker whose logs do not change has nothing to do. The compiled lane of Produce knows the
slot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable


class WatermarkNews:
    """What a log tells of its high watermark."""

    __slots__ = ("is_awake", "on_wake")

    def __init__(self) -> None:
        self.is_awake = True
        """Whether changes are noticed without being told."""
        self.on_wake: Callable[[], None] | None = None

    def wake(self) -> None:
        """A high watermark has moved, or a log has come or gone."""
        if not self.is_awake:
            self.is_awake = True
            if self.on_wake is not None:
                self.on_wake()


NOBODY: Final = WatermarkNews()
"""For a log that is in no manager's care."""
