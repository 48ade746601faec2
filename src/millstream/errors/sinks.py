"""What Spark's exactly-once sink refuses to do."""

from __future__ import annotations

from millstream.errors.base import MillstreamError

__all__ = ["SinkRefused"]


class SinkRefused(MillstreamError):
    """A batch cannot be written exactly once: what is there of it is not what it has now."""
