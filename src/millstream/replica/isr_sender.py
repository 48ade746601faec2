"""Takes a partition's proposals to the controller, and the answers back to the partition.

The fetch path and the periodic check of `ReplicaManager` submit here. One proposal per partition is
under way at a time, which the partition itself sees to.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from millstream.errors import ApiError

if TYPE_CHECKING:
    from millstream.clock import Clock
    from millstream.replica.isr import IsrProposal
    from millstream.replica.partition import Partition
    from millstream.replica.ports import IsrAlterer, IsrAnswer

_logger = logging.getLogger(__name__)


class IsrSender:
    """Between partitions and the controller."""

    __slots__ = ("_alterer", "_clock")

    def __init__(self, alterer: IsrAlterer, clock: Clock) -> None:
        self._alterer = alterer
        self._clock = clock

    def submit(self, partition: Partition, proposal: IsrProposal) -> None:
        """Ask the controller."""
        _logger.info(
            "%s: asking for ISR %s instead of %s",
            partition.name,
            sorted(proposal.members),
            sorted(partition.isr),
        )
        self._alterer.submit(proposal, lambda answer: self._on_answer(partition, proposal, answer))

    def _on_answer(
        self, partition: Partition, proposal: IsrProposal, answer: IsrAnswer | ApiError
    ) -> None:
        now_ms = self._clock.monotonic_ms()
        if isinstance(answer, ApiError):
            _logger.warning("%s: the ISR stays as it is: %s", partition.name, answer)
            if partition.on_isr_refusal(proposal, answer, now_ms):
                self.submit(partition, proposal)
                return
        else:
            partition.on_isr_answer(proposal, answer, now_ms)
        partition.changed()
