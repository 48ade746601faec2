"""Tests of Millstream."""
