"""Interceptors: code that sees every record before it is sent and every acknowledgement after.

The producer calls the chain; an error in an interceptor is logged and changes nothing else. They
are given as objects, classes or dotted names.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from millstream.client.interceptor_chain import make_interceptors
from millstream.client.producer.record import ProducerRecord
from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.client.producer.delivery import Delivery
    from millstream.client.producer.record import RecordMetadata

_logger = logging.getLogger(__name__)


class ProducerInterceptor:
    """Does nothing; derive from it, or have methods of the same names."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record to send in place of this one; called by the thread that sends."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        """What became of a record: where it is, or why it was lost; on the dispatcher thread."""

    def close(self) -> None:
        """The producer is being closed."""


class InterceptorChain:
    """Interceptors in the order in which they were given."""

    def __init__(self, interceptors: Sequence[Any]) -> None:
        self._interceptors = interceptors

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record after each has seen it; one that fails is passed over."""
        for each in self._interceptors:
            on_send = getattr(each, "on_send", None)
            if on_send is None:
                continue
            try:
                changed = on_send(record)
            except Exception:
                _logger.exception("%r failed on_send for topic %s", each, record.topic)
                continue
            if isinstance(changed, ProducerRecord):
                record = changed
            else:
                _logger.error("%r: on_send gave %r instead of a record", each, changed)
        return record

    def on_done(self, delivery: Delivery) -> None:
        """Tell each what became of a record."""
        outcome = delivery.outcome()
        if isinstance(outcome, MillstreamError):
            self.acknowledge(None, outcome)
        else:
            self.acknowledge(outcome, None)

    def acknowledge(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        """Tell each where a record is, or why it is not."""
        for each in self._interceptors:
            self._call(each, "on_acknowledgement", metadata, error)

    def close(self) -> None:
        """Tell each that it is over."""
        for each in self._interceptors:
            self._call(each, "close")

    def _call(self, interceptor: Any, method: str, *arguments: Any) -> None:
        function = getattr(interceptor, method, None)
        if function is None:
            return
        try:
            function(*arguments)
        except Exception:
            _logger.exception("%r failed in %s", interceptor, method)


def make_chain(given: object) -> InterceptorChain:
    """A chain from a setting: one or several objects, classes or dotted names."""
    return InterceptorChain(make_interceptors(given, "on_send", "on_acknowledgement"))
