"""Tests of the clients without sockets."""
