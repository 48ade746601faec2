"""Every exception of Millstream, in one tree; wire code to class and back.

`base` has the trunk and draws the tree; `client` has what clients find by themselves; the other
modules have one class per wire code, sorted by what the code is about. Import names from here.
Nothing here does anything but describe.
"""

from __future__ import annotations

# Each module below lists its names in __all__; listing them again here would be a second truth.
from millstream.errors import (
    client,
    cluster,
    groups,
    partitions,
    pipelines,
    security,
    sinks,
    transactions,
)
from millstream.errors.base import (
    ApiError,
    DecodeError,
    EncodeError,
    FrameTooLarge,
    InvalidArgument,
    MillstreamError,
    ProtocolError,
    QuorumFault,
    RetriableError,
    StaleMetadataError,
)
from millstream.errors.client import *  # noqa: F403
from millstream.errors.cluster import *  # noqa: F403
from millstream.errors.cluster import UnknownServerError
from millstream.errors.groups import *  # noqa: F403
from millstream.errors.partitions import *  # noqa: F403
from millstream.errors.pipelines import *  # noqa: F403
from millstream.errors.security import *  # noqa: F403
from millstream.errors.sinks import *  # noqa: F403
from millstream.errors.transactions import *  # noqa: F403

NO_ERROR = 0
"""The wire code of success; it has no class."""


def _classes_by_code() -> dict[int, type[ApiError]]:
    # A subclass that only sharpens the meaning (DecompressedTooLarge) inherits its code
    # and must not answer for it.
    found: dict[int, type[ApiError]] = {}
    pending: list[type[ApiError]] = [ApiError]
    while pending:
        cls = pending.pop()
        pending.extend(cls.__subclasses__())
        if "code" in vars(cls):
            found[cls.code] = cls
    return dict(sorted(found.items()))


ERRORS_BY_CODE = _classes_by_code()


def class_for_code(code: int) -> type[ApiError]:
    """The class of a wire code; a code from the future is an UnknownServerError."""
    return ERRORS_BY_CODE.get(code, UnknownServerError)


def error_for_code(code: int, message: str | None = None) -> ApiError:
    """An exception to raise for a wire code; `message` is what the other side said about it."""
    if code in ERRORS_BY_CODE:
        return ERRORS_BY_CODE[code](message) if message else ERRORS_BY_CODE[code]()
    return UnknownServerError(message or f"error code {code} is not known to this version")


__all__ = [
    "ERRORS_BY_CODE",
    "NO_ERROR",
    "ApiError",
    "DecodeError",
    "EncodeError",
    "FrameTooLarge",
    "InvalidArgument",
    "MillstreamError",
    "ProtocolError",
    "QuorumFault",
    "RetriableError",
    "StaleMetadataError",
    "class_for_code",
    "error_for_code",
]
__all__ += client.__all__
__all__ += cluster.__all__
__all__ += groups.__all__
__all__ += partitions.__all__
__all__ += pipelines.__all__
__all__ += security.__all__
__all__ += sinks.__all__
__all__ += transactions.__all__
