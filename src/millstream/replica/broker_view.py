"""`BrokerView` from the metadata cache: which brokers may be in sync, which are alive, where."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.replica.follower_state import UNKNOWN_BROKER_EPOCH

if TYPE_CHECKING:
    from millstream.metadata.cache import KRaftMetadataCache


class ImageBrokerView:
    """Answers from the current image."""

    __slots__ = ("_cache",)

    def __init__(self, cache: KRaftMetadataCache) -> None:
        self._cache = cache

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether a broker may join an ISR: active, and still the process that was seen."""
        broker = self._cache.broker(broker_id)
        if broker is None or not broker.is_active:
            return False
        return broker_epoch in (UNKNOWN_BROKER_EPOCH, broker.epoch)

    def epoch_of(self, broker_id: int) -> int:
        """The epoch that a broker which is alive is registered with; -1 if there is none."""
        broker = self._cache.broker(broker_id)
        return UNKNOWN_BROKER_EPOCH if broker is None or broker.is_fenced else broker.epoch

    def is_alive(self, broker_id: int) -> bool:
        """Whether a broker is registered and not fenced."""
        return self._cache.is_alive(broker_id)

    def rack_of(self, broker_id: int) -> str | None:
        """Where a broker is."""
        broker = self._cache.broker(broker_id)
        return None if broker is None else broker.rack
