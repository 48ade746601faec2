"""The slow codec gives what the compiled one gives, in every corner of the notation."""

from __future__ import annotations

import pytest

from millstream.errors import EncodeError
from millstream.protocol import reference
from millstream.protocol.message import EMPTY, Message, Struct, UnknownTags
from millstream.protocol.notation import VersionRange
from millstream.types import ReadableBuffer, Uuid


class Inner(Struct):
    """A struct that comes in every place where a struct may be."""

    __slots__ = {"number": "int16 = -1", "since": "int64 2+"}

    def __init__(self, *, number: int = -1, since: int = 0, unknown_tags: UnknownTags = ()) -> None:
        self.number = number
        self.since = since
        self.unknown_tags = unknown_tags


class Sample(Message):
    """A message with one field of every kind."""

    __slots__ = {  # noqa: RUF023  # the order is that of the wire
        "flag": "bool",
        "small": "uint16",
        "large": "uint32",
        "ratio": "float64",
        "topic_id": "uuid",
        "name": "string? = null",
        "blob": "bytes",
        "batch": "records?",
        "inner": "Inner",
        "late": "Inner 2+",
        "maybe": "Inner? = null",
        "words": "[]string",
        "ids": "[]uuid?",
        "flags": "[]bool",
        "inners": "[]Inner? = null",
        "tagged": "Inner 1+, tag 0",
        "tagged_maybe": "Inner? 1+ = null, tag 1",
        "tagged_words": "[]string 1+, tag 2",
        "tagged_blob": "bytes 1+, tag 3",
        "tagged_id": "uuid 1+, tag 4",
        "tagged_inners": "[]Inner? 1+, tag 5",
    }

    VERSIONS = VersionRange(0, 2)
    FLEXIBLE = VersionRange(1, 2)
    CARRIES_RECORDS = True

    def __init__(
        self,
        *,
        flag: bool = False,
        small: int = 0,
        large: int = 0,
        ratio: float = 0.0,
        topic_id: Uuid = Uuid.ZERO,
        name: str | None = None,
        blob: bytes = b"",
        batch: ReadableBuffer | None = None,
        inner: Inner | None = None,
        late: Inner | None = None,
        maybe: Inner | None = None,
        words: list[str] = EMPTY,
        ids: list[Uuid] | None = EMPTY,
        flags: list[bool] = EMPTY,
        inners: list[Inner] | None = None,
        tagged: Inner | None = None,
        tagged_maybe: Inner | None = None,
        tagged_words: list[str] = EMPTY,
        tagged_blob: bytes = b"",
        tagged_id: Uuid = Uuid.ZERO,
        tagged_inners: list[Inner] | None = EMPTY,
        unknown_tags: UnknownTags = (),
    ) -> None:
        self.flag = flag
        self.small = small
        self.large = large
        self.ratio = ratio
        self.topic_id = topic_id
        self.name = name
        self.blob = blob
        self.batch = batch
        self.inner = Inner() if inner is None else inner
        self.late = Inner() if late is None else late
        self.maybe = maybe
        self.words = [] if words is EMPTY else words
        self.ids = [] if ids is EMPTY else ids
        self.flags = [] if flags is EMPTY else flags
        self.inners = inners
        self.tagged = tagged
        self.tagged_maybe = tagged_maybe
        self.tagged_words = [] if tagged_words is EMPTY else tagged_words
        self.tagged_blob = tagged_blob
        self.tagged_id = tagged_id
        self.tagged_inners = [] if tagged_inners is EMPTY else tagged_inners
        self.unknown_tags = unknown_tags


ID = Uuid(bytes(range(16)))
FILLED = Sample(
    flag=True,
    small=65535,
    large=(1 << 32) - 1,
    ratio=-1.5,
    topic_id=ID,
    name="né",
    blob=b"blob",
    batch=b"batch",
    inner=Inner(number=1),
    maybe=Inner(number=2),
    words=["a", "", "c" * 200],
    ids=[ID, Uuid.ZERO],
    flags=[True, False],
    inners=[Inner(number=3)],
)
TAGGED = Sample(
    tagged=Inner(number=4),
    tagged_maybe=Inner(),
    tagged_words=["x"],
    tagged_blob=b"y",
    tagged_id=ID,
    tagged_inners=[Inner(number=5, unknown_tags=((1, b"z"),))],
    unknown_tags=((6, b"six"), (70_000, b"")),
)
NULLS = Sample(ids=None, inners=None)
NULL_IN_TAG = Sample(tagged_inners=None)
LATE = Sample(late=Inner(number=6, since=7))


@pytest.mark.parametrize(
    ("message", "versions"),
    [
        (Sample(), (0, 1, 2)),
        (FILLED, (0, 1, 2)),
        (NULLS, (0, 1, 2)),
        (TAGGED, (1, 2)),
        (NULL_IN_TAG, (1, 2)),
        (LATE, (2,)),
    ],
)
def test_both_codecs_agree(message: Sample, versions: tuple[int, ...]) -> None:
    for version in versions:
        encoded = message.encode(version)

        assert reference.encode(message, version) == encoded
        assert reference.decode(Sample, encoded, version, 0) == (message, len(encoded))
        assert Sample.decode(encoded, version) == message
        assert Sample.decode(memoryview(encoded), version) == message


@pytest.mark.parametrize(("message", "version"), [(TAGGED, 0), (NULL_IN_TAG, 0), (LATE, 1)])
def test_both_codecs_refuse_what_a_version_lacks(message: Sample, version: int) -> None:
    with pytest.raises(EncodeError, match="is set but the version has no such field"):
        message.encode(version)


def test_a_default_struct_in_a_tag_is_not_sent_but_one_that_may_be_null_is() -> None:
    silent = Sample(tagged=Inner())
    spoken = Sample(tagged_maybe=Inner())

    assert silent.encode(1) == Sample().encode(1)
    assert Sample.decode(spoken.encode(1), 1).tagged_maybe == Inner()
    assert Sample.decode(Sample().encode(1), 1).tagged_maybe is None
