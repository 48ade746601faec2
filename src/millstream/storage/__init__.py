"""A partition's records on disk, in Apache Kafka's file formats; see docs/internals/storage.md.

Usable by itself: no network, no cluster knowledge. Import the names from their modules.
"""

from __future__ import annotations
