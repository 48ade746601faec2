"""Producers against an embedded broker."""
