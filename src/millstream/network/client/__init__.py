"""The client's end of the wire: connections to brokers, requests out, answers back by their ids.

Used by the clients and by brokers that talk to each other. Import the names from their modules.
"""

from __future__ import annotations
