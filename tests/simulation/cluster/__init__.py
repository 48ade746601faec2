"""Whole nodes in simulated worlds, under faults that a seed decides."""
