"""Several nodes in one process, as one cluster."""
