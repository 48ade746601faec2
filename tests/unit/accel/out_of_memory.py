"""What the compiled kernel does when memory runs out at any allocation: a process for a test.

`test_memory_safety` runs it and looks at its exit code.
"""

from __future__ import annotations

import importlib
from typing import Any

from millstream._accel.arrow.records import ArrowRecordsBuilder
from millstream._accel.codec.record_codec import BatchWriter, decode_records

RECORD_COUNT = 3


def main() -> None:
    """Fail each allocation of each call in turn; whatever happens, nothing may be half done."""
    testcapi: Any = importlib.import_module("_testcapi")
    writer = BatchWriter()
    for timestamp in range(RECORD_COUNT):
        writer.append(timestamp, b"key", b"value", {"h": b"x"})
    before = writer.seal()
    body = bytes(writer.body())
    failures = 0
    for attempt in range(30):
        for work in calls(writer, body):
            failures += not survives(testcapi, work, attempt)
            if writer.record_count > RECORD_COUNT:
                writer.clear()
                writer.append_raw(body, RECORD_COUNT - 1, RECORD_COUNT - 1)

    assert failures > 30, failures
    assert len(decode_records(body, RECORD_COUNT, 0, 0)) == RECORD_COUNT
    assert before[61:] == body


def calls(writer: BatchWriter, body: bytes) -> list[Any]:
    """Everything that allocates."""
    large = b"v" * 100_000
    builder = ArrowRecordsBuilder()
    return [
        lambda: writer.append(0, None, large),
        lambda: decode_records(body, RECORD_COUNT, 0, 0),
        lambda: builder.append(body, RECORD_COUNT, 0, 0),
        lambda: ArrowRecordsBuilder().finish().__arrow_c_array__(),
        lambda: ArrowRecordsBuilder().finish().__arrow_c_stream__(),
    ]


def survives(testcapi: Any, work: Any, attempt: int) -> bool:
    """Run with the allocation number `attempt`, and all after it, failing."""
    try:
        testcapi.set_nomemory(attempt)
        work()
    except MemoryError:
        return False
    finally:
        testcapi.remove_mem_hooks()
    return True


if __name__ == "__main__":
    main()
