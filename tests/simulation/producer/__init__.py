"""A producer against a simulated cluster: drops, delays, restarts and new leaders, from a seed."""
