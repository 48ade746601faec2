"""Tests with real sockets and processes on loopback."""
