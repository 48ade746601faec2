"""The record kernel in plain Python: the reference that the compiled kernel must equal.

`millstream.records.kernel` picks one of the two; tests run on both. Same names, signatures, errors
and error texts as `millstream._accel`. Nothing here needs anything but the standard library.
"""

from __future__ import annotations
