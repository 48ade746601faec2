"""Clients against brokers, over real sockets."""
