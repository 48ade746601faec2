"""Share consumers (KIP-932): each record goes to one member, which says what became of it.

Several members read the same partitions; each record is with one of them until it is accepted,
rejected, released, or its lock ends. `share_consumer` and `async_share_consumer` have the API.
"""
