"""Producers, brokers and consumers together, in virtual time, with faults from a seed."""
