"""Tests of administration in virtual time."""
