"""Clients' members of groups against the group coordinator, in virtual time, from a seed."""
