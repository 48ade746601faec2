"""Stories of transactions."""
