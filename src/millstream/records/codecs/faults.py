"""The errors that all codecs share."""

from __future__ import annotations

from millstream.errors import CorruptMessage, DecompressedTooLarge


def corrupt(codec: str, problem: object) -> CorruptMessage:
    """The error for bytes that are not what the codec calls valid."""
    return CorruptMessage(f"{codec}: {problem}")


def cut_off(codec: str, size: int) -> CorruptMessage:
    """The error for bytes that end too early."""
    return corrupt(codec, f"cut off after {size} bytes")


def too_large(codec: str, size_limit: int) -> DecompressedTooLarge:
    """The error for data that grows past the limit."""
    return DecompressedTooLarge(
        f"{codec}: more than {size_limit} bytes when decompressed; if the data is meant to be this "
        "large, raise the size limit"
    )
