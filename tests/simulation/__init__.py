"""Seeded clusters with faults; invariants are checked after every event."""
