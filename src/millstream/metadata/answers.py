"""Large answers to Metadata, kept until the metadata change.

The Metadata handler asks for a kept answer first, and gives what it has built. To describe 10,000
topics takes a tenth of a second, in which nobody else is served, and many clients ask for the same
at the same time. One thread only. Once answers depend on who asks, the key has to tell that too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from millstream.protocol.message import Message
from millstream.protocol.messages.metadata import MetadataResponse

if TYPE_CHECKING:
    from millstream.metadata.cache import KRaftMetadataCache

AnswerKey: TypeAlias = tuple[str, int, bytes]
"""Listener, version and body of a request."""

KEPT_BYTES_MIN: Final = 8 * 1024
"""Smaller answers are built in less than a millisecond."""
KEPT_BYTES_MAX: Final = 32 * 1024 * 1024
"""Of all kept answers together; the oldest go first."""


class EncodedMetadata(Message):
    """An answer to Metadata as bytes of one version."""

    __slots__ = ("body",)

    KEY = MetadataResponse.KEY

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self.body = body

    def encode(self, version: int) -> bytes:
        """The bytes; only an asker of the same version gets them."""
        return self.body


class MetadataAnswers:
    """Kept answers, by what was asked."""

    __slots__ = ("_cluster", "_kept", "_kept_bytes", "_metadata", "_topics")

    def __init__(self, metadata: KRaftMetadataCache) -> None:
        self._metadata = metadata
        self._kept: dict[AnswerKey, EncodedMetadata] = {}
        self._forget()

    def find(self, key: AnswerKey) -> EncodedMetadata | None:
        """The answer to the same request, if topics and brokers are what they were."""
        image = self._metadata.image
        if image.topics is not self._topics or image.cluster is not self._cluster:
            self._forget()
        return self._kept.get(key)

    def keep(self, key: AnswerKey, response: MetadataResponse) -> EncodedMetadata:
        """Keep an answer that was built since the last `find`, if it is large; what to send."""
        _, version, _ = key
        answer = EncodedMetadata(response.encode(version))
        size = len(answer.body)
        if KEPT_BYTES_MIN <= size <= KEPT_BYTES_MAX:
            while self._kept_bytes + size > KEPT_BYTES_MAX:
                oldest = self._kept.pop(next(iter(self._kept)))
                self._kept_bytes -= len(oldest.body)
            self._kept[key] = answer
            self._kept_bytes += size
        return answer

    def _forget(self) -> None:
        image = self._metadata.image
        self._topics, self._cluster = image.topics, image.cluster
        self._kept.clear()
        self._kept_bytes = 0
