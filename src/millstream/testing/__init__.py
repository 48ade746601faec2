"""The shipped test kit: fakes with faults that pass the same tests as the real things.

Import the names from their modules; nothing of it is imported by Millstream itself.
"""

from __future__ import annotations
