"""The commands against a broker."""
