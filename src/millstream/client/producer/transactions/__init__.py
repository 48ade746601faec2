"""Transactions of a producer, of both versions.

`state.py` has the states and which may follow which; `manager.py` is the `TransactionManager`, told
by the clients and asked by the Sender; `requests.py` builds what it sends and reads the answers.
"""

from __future__ import annotations
