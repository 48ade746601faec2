"""The trunk of the exception tree: whose fault an error is and what the caller may do.

MillstreamError
├── InvalidArgument (also a ValueError)     the caller passed a value that cannot be used
│   └── InvalidPipeline                     ... in the definition of a pipeline
├── PipelineFailed                          a pipeline's query cannot go on
├── PipelineAlreadyRunning                  ... is another process's to run
├── CheckpointMismatch                      ... has a checkpoint or a directory of another
├── ConnectorFailed                         ... has a database or a file that does not do its part
├── SinkRefused                             a batch cannot be written exactly once
├── QuorumFault                             the metadata quorum broke a promise: stop the node
├── ClientError                             what clients find by themselves, see `client`
├── ProtocolError                           bytes or values that are not the protocol
│   ├── DecodeError                         the other side's bytes are wrong
│   ├── EncodeError                         our value does not fit the version
│   └── FrameTooLarge                       a frame claims more than the limit
└── ApiError                                has a code on the wire
    └── RetriableError                      the same request may succeed later
        └── StaleMetadataError              ... after the metadata was refreshed
"""

from __future__ import annotations

from typing import ClassVar


class MillstreamError(Exception):
    """Whatever Millstream raises on purpose."""


class InvalidArgument(MillstreamError, ValueError):
    """A value that a caller passed cannot be used; the message says which and what would do."""


class QuorumFault(MillstreamError):
    """The metadata quorum lost or changed what was committed; going on would spread the damage."""


class ProtocolError(MillstreamError):
    """Something on the wire is not as the protocol has it."""


class _MessageError(ProtocolError):
    """A fault at a known place of a known message."""

    def __init__(
        self,
        problem: str,
        *,
        message: str = "",
        version: int = -1,
        field: str = "",
        position: int = -1,
    ) -> None:
        super().__init__(problem, message, version, field, position)
        self.problem = problem
        self.message = message
        self.version = version
        self.field = field
        self.position = position

    def __str__(self) -> str:
        place = " ".join(
            part
            for part in (
                self.message,
                f"v{self.version}" if self.version >= 0 else "",
                f"field {self.field}" if self.field else "",
                f"at byte {self.position}" if self.position >= 0 else "",
            )
            if part
        )
        return f"{place}: {self.problem}" if place else self.problem

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), *self.args)


def _rebuild(
    cls: type[_MessageError], problem: str, message: str, version: int, field: str, position: int
) -> _MessageError:
    return cls(problem, message=message, version=version, field=field, position=position)


class DecodeError(_MessageError):
    """Bytes from the other side are not a message of the version they claim."""


class EncodeError(_MessageError):
    """A value of ours cannot be written in the version asked for."""


class FrameTooLarge(ProtocolError):
    """A frame claims a size that is negative or above the limit; the connection must be closed."""


class ApiError(MillstreamError):
    """An error that has a code on the wire. Without a text of its own it says its sentence."""

    code: ClassVar[int]
    wire_name: ClassVar[str]
    retriable: ClassVar[bool] = False
    refreshes_metadata: ClassVar[bool] = False

    def __str__(self) -> str:
        return super().__str__() or self.sentence()

    @classmethod
    def sentence(cls) -> str:
        """What the code means, for the reference page and for errors without a text."""
        return " ".join((cls.__doc__ or cls.wire_name).split())


class RetriableError(ApiError):
    """The same request may succeed later, unchanged."""

    retriable = True


class StaleMetadataError(RetriableError):
    """The asker's view of the cluster is out of date: refresh it, then retry."""

    refreshes_metadata = True
