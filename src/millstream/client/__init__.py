"""Clients: producer, consumer, share consumer, admin, each blocking and for asyncio, on one core.

The core (`runtime` and what it drives) runs on one I/O thread per client; state machines are told
the time and never wait. Clients know the wire and nothing of the broker's inside. The public names
are exported by `millstream` itself.
"""
