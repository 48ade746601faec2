"""The compiled kernel, in Cython and C: `codec`, `arrow`, `client` and `broker`.

`millstream.records.kernel` chooses between codec and Arrow here and their plain-Python versions in
`millstream.records.plain`; docs/internals/kernel.md says where the others are chosen, which threads
and locks there are, and what each part bought. Nothing here imports the layers above: what it must
know of their classes it is told.

The environment variable MILLSTREAM_IMPL decides, and is read here only: `python` runs the plain
versions, `compiled` insists on the kernel, unset or empty takes the kernel when it was built.
"""

from __future__ import annotations

import os
from importlib import import_module

__all__ = ["COMPILED", "IMPLEMENTATIONS"]

IMPLEMENTATIONS = ("compiled", "python")
"""What MILLSTREAM_IMPL may say."""

_MODULES = (
    "codec.crc32c",
    "codec.murmur2",
    "codec.record_codec",
    "codec.consumer_record",
    "codec.consumer_records",
    "codec.row_fingerprint",
    "arrow.records",
    "broker.client_batch",
    "broker.produce_frames",
    "broker.fetch_state",
    "broker.batch_finder",
    "broker.log_state",
    "broker.log_tail",
    "broker.partition_state",
    "broker.fast_produce",
    "broker.fast_fetch",
    "broker.selector",
)


def _choose(wanted: str) -> bool:
    """Whether the kernel runs. All of it or nothing: a half-built kernel is no kernel."""
    if wanted not in ("", *IMPLEMENTATIONS):
        raise ImportError(
            f"MILLSTREAM_IMPL is {wanted!r}; set it to 'compiled' or 'python', or leave it unset"
        )
    if wanted == "python":
        return False
    try:
        for name in _MODULES:
            import_module(f"{__name__}.{name}")
    except ImportError as error:
        if wanted == "compiled":
            raise ImportError(
                "MILLSTREAM_IMPL is 'compiled' but the extension modules were not built; "
                "install a C compiler and reinstall Millstream, or unset MILLSTREAM_IMPL"
            ) from error
        return False
    return True


COMPILED: bool = _choose(os.environ.get("MILLSTREAM_IMPL", ""))
"""True when the compiled kernel runs, False on the plain-Python versions."""
