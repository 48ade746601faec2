"""Embedded brokers with independent clients: lifecycle, faults, time, pytest fixtures."""
