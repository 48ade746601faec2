"""What a set of rows is, in a few bytes: whether a second try writes the same as the first.

Spark's exactly-once sink makes a `Fingerprint` of what each task writes and stores it with the
rows. Order does not count, everything else does; see `plain.row_fingerprint`.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.records.kernel import ArrowRecordsReader, fold_rows

__all__ = ["Fingerprint", "fingerprint_of"]

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Some rows: how many, and the sums of the hashes of their keys and of all they have."""

    rows: int = 0
    keys: int = 0
    content: int = 0

    def __add__(self, other: Fingerprint) -> Fingerprint:
        return Fingerprint(
            self.rows + other.rows,
            (self.keys + other.keys) & _MASK,
            (self.content + other.content) & _MASK,
        )


def fingerprint_of(table: object, topic: str) -> Fingerprint:
    """The fingerprint of all rows of Arrow data, as `Producer.send_batch` takes it, for a topic."""
    found = Fingerprint()
    name = topic.encode()
    for chunk in ArrowRecordsReader(table):
        keys, content = fold_rows(chunk, name)
        found += Fingerprint(len(chunk), keys, content)
    return found
