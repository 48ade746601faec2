"""The log against its model, on a disk that fails."""
