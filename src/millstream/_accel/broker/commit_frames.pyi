from millstream.types import ReadableBuffer

def read_commit(
    buffer: ReadableBuffer, at: int, end: int, version: int, correlation_id: int
) -> (
    tuple[
        tuple[
            str,
            int,
            str,
            str | None,
            list[tuple[str | bytes, list[tuple[int, int, int, str | None]]]],
            int,
        ],
        bytes,
    ]
    | None
): ...
