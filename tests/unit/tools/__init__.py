"""Tests of the network layer without sockets."""
