"""The parts of a producer, one by one."""
