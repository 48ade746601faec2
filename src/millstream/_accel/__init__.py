"""The compiled kernel, in Cython and C: `codec`, `arrow`, `client` and `broker`.

This module alone decides what runs: `COMPILED` for codec and Arrow, whose names
`millstream.records.kernel` exports, and `find` for the parts of broker and client, which a module
that has the plain version asks. docs/internals/kernel.md says where those are, which threads and
locks there are, and what each part bought. Nothing here imports the layers above: what it must know
of their classes it is told.

The environment variable MILLSTREAM_IMPL decides, and is read here only: `python` runs the plain
versions, `compiled` insists on the kernel, unset or empty takes the kernel when it was built.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

__all__ = ["COMPILED", "IMPLEMENTATIONS", "find"]

IMPLEMENTATIONS = ("compiled", "python")
"""What MILLSTREAM_IMPL may say."""

_EVERYWHERE = (
    "codec.crc32c",
    "codec.murmur2",
    "codec.record_codec",
    "codec.consumer_record",
    "codec.consumer_records",
    "codec.row_fingerprint",
    "arrow.records",
)
# They stand on epoll and eventfd.
_ON_LINUX = (
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
# Found and not loaded: a broker has no use for them.
_ON_LINUX_LATER = (
    "client.client_selector",
    "client.delivery",
    "client.produce_sink",
    "client.record_accumulator",
)
_RELY_ON_THE_GIL = frozenset(_ON_LINUX_LATER) - {"client.client_selector"}


def _require_modules() -> None:
    for name in (*_EVERYWHERE, *(_ON_LINUX if sys.platform == "linux" else ())):
        import_module(f"{__name__}.{name}")
    for name in _ON_LINUX_LATER if sys.platform == "linux" else ():
        if find_spec(f"{__name__}.{name}") is None:
            raise ImportError(f"{name} was not built")


def _choose(wanted: str) -> bool:
    """Whether the kernel runs. All of it or nothing: a half-built kernel is no kernel."""
    if wanted not in ("", *IMPLEMENTATIONS):
        raise ImportError(
            f"MILLSTREAM_IMPL is {wanted!r}; set it to 'compiled' or 'python', or leave it unset"
        )
    if wanted == "python":
        return False
    try:
        _require_modules()
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


def find(name: str) -> Any:
    """The extension module of a part of broker or client; None where the plain version runs.

    Besides `COMPILED` that depends on the system, and for the parts of producers on the GIL.
    """
    if not COMPILED or sys.platform != "linux":
        return None
    if name in _RELY_ON_THE_GIL and not getattr(sys, "_is_gil_enabled", lambda: True)():
        return None
    return import_module(f"{__name__}.{name}")
