"""Millstream: event streaming for Python teams, on the Kafka protocol.

Importing this package costs next to nothing; the parts are imported where they are used.
"""

from __future__ import annotations

__version__ = "0.1.0"
