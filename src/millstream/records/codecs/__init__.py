"""One module per compression codec: the framing Kafka gives it, and the library that does the work.

Each has `compress(data, level)` and `decompress(data, size_limit)` and is imported by
`millstream.records.compression` on first use. Before a library sees foreign bytes their framing is
walked here, so that memory follows from bytes that exist and never from a size that is claimed.
"""

from __future__ import annotations
