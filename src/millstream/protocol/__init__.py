"""Bytes to messages and back, without sockets, files or clocks.

`frame` cuts a stream into frames and puts headers on them, `api` knows the APIs and their
versions, `messages` has a class per message, `records_framing` the wrappers of records whose
content is a message. Importing this package imports no message.
"""

from __future__ import annotations
