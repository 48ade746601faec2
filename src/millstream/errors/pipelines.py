"""What is wrong with a pipeline: its definition, or one of its queries."""

from __future__ import annotations

from millstream.errors.base import InvalidArgument, MillstreamError

__all__ = [
    "CheckpointMismatch",
    "ConnectorFailed",
    "InvalidPipeline",
    "PipelineAlreadyRunning",
    "PipelineFailed",
]


class InvalidPipeline(InvalidArgument):
    """A pipeline's definition cannot be used; `faults` has all that is wrong, with its place."""

    def __init__(self, message: str, faults: tuple[object, ...] = ()) -> None:
        super().__init__(message)
        self.faults = faults


class PipelineFailed(MillstreamError):
    """A pipeline ended because a query failed more often than its restarts allow."""


class PipelineAlreadyRunning(MillstreamError):
    """Another process runs a pipeline with the same storage."""


class CheckpointMismatch(MillstreamError):
    """A checkpoint, or a sink's directory, is not this query's: going on would lose rows."""


class ConnectorFailed(MillstreamError):
    """What a pipeline reads from or writes to does not do its part: a database, a table, a file."""
