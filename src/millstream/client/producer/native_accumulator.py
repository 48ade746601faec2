"""The compiled way of a record joined with the plain accumulator, which does the rest.

`make_accumulator` chooses: the compiled way reads the machine's own clock, so whoever brings
another one, as simulations do, gets the plain accumulator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.client.producer import kernel
from millstream.client.producer.record_accumulator import RecordAccumulator
from millstream.clock import SystemClock

if TYPE_CHECKING:
    from millstream.clock import Clock


def make_accumulator(*, clock: Clock, **settings: Any) -> RecordAccumulator:
    """A `RecordAccumulator`, compiled if it can be; takes what that one takes."""
    if not kernel.COMPILED or type(clock) is not SystemClock:
        return RecordAccumulator(clock=clock, **settings)
    from millstream._accel.record_accumulator import RecordAppender

    class NativeAccumulator(RecordAppender, RecordAccumulator):
        """See `RecordAppender`: `append` is its own, the rest is the plain one's."""

    made = NativeAccumulator(clock=clock, **settings)
    made.bind(
        made._topics,
        made._lock,  # type: ignore[arg-type]  # The compiled lock, where this is compiled.
        RecordAccumulator.append,
        batch_size=made._batch_size,
        record_size_max=made._record_size_max,
        ignores_keys=made._ignores_keys,
    )
    return made
