"""Storage in real processes, on the real disk."""
