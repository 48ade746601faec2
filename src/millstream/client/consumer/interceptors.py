"""Interceptors of a consumer: they see records before the application, and commits after it.

They are called in the order they were given, on the thread that polls. What one returns the next
one gets. One that fails is logged and passed over: it never keeps records from the application.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from millstream.client.interceptor_chain import make_interceptors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.client.groups import OffsetAndMetadata
    from millstream.records.kernel import ConsumerRecord
    from millstream.types import TopicPartition

_logger: Final = logging.getLogger(__name__)


class ConsumerInterceptor:
    """Override what is of interest; an object with some of these methods does as well."""

    def on_consume(self, records: list[ConsumerRecord[Any, Any]]) -> list[ConsumerRecord[Any, Any]]:
        """Records on their way to the application; return what it shall get."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Offsets that were committed."""

    def close(self) -> None:
        """The consumer is closed."""


class ConsumerInterceptors:
    """A chain of them."""

    def __init__(self, given: object) -> None:
        """From a setting: one or several objects, classes or dotted names."""
        self._chain = make_interceptors(given, "on_consume", "on_commit")

    def __bool__(self) -> bool:
        return bool(self._chain)

    def on_consume(self, records: list[ConsumerRecord[Any, Any]]) -> list[ConsumerRecord[Any, Any]]:
        """What the application gets."""
        for each in self._chain:
            on_consume = getattr(each, "on_consume", None)
            if on_consume is None:
                continue
            try:
                changed = on_consume(records)
                if isinstance(changed, Iterable):
                    records = changed if isinstance(changed, list) else list(changed)
                    continue
            except Exception:
                _logger.exception("%r failed in on_consume and is passed over", each)
                continue
            _logger.error("%r: on_consume gave %r instead of records", each, changed)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Tell of a commit."""
        self._tell("on_commit", offsets)

    def close(self) -> None:
        """Tell of the end."""
        self._tell("close")

    def _tell(self, name: str, *arguments: object) -> None:
        for each in self._chain:
            method = getattr(each, name, None)
            try:
                if method is not None:
                    method(*arguments)
            except Exception:
                _logger.exception("%r failed in %s", each, name)
