"""Hypothesis strategies that several test suites share."""
