"""Nodes: as processes on loopback, and in this process on a simulated disk."""
