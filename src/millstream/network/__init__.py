"""Sockets, both ends of them: `server` for the broker's, `client` for those of its clients.

Nothing here knows what a request means.
"""

from __future__ import annotations
