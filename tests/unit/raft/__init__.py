"""Tests of raft, rule by rule; the numbers are those of the facts, section 6.14."""
