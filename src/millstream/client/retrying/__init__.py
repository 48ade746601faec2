"""Handlers that may fail: delayed retries by stages, dead letters, each record handled once.

`RetryingConsumer` and `AsyncRetryingConsumer` run a function over the records of topics. `core`
decides what becomes of a record and has no hands; `seen` remembers what was handled; `topics` knows
the names of retry and dead-letter topics. Built on the public producer, consumer and admin only.
"""

from __future__ import annotations

from millstream.client.retrying.attempt import Attempt
from millstream.client.retrying.seen import MemorySeen, SeenStore, SqliteSeen

__all__ = ["Attempt", "MemorySeen", "SeenStore", "SqliteSeen"]
