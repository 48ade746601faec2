"""Whether somebody looks after high watermarks from time to time, or has to be woken for it.

The logs of a `LogManager` share one. While it is awake a log that moves its high watermark does no
more than look here; the first that moves one after a quiet time wakes the task that writes them
down. So a broker whose logs do not change has nothing to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.storage.log.log_state import WakeState

if TYPE_CHECKING:
    from collections.abc import Callable


class WatermarkWakeup(WakeState):
    """How a log wakes the task that writes high watermarks down."""

    __slots__ = ("on_wake",)

    def __init__(self) -> None:
        super().__init__()
        self.on_wake: Callable[[], None] | None = None

    def wake(self) -> None:
        """A high watermark has moved, or a log has come or gone."""
        if not self.is_awake:
            self.is_awake = True
            if self.on_wake is not None:
                self.on_wake()
