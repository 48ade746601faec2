"""Stories as text: what happens, and what is expected, in one file."""
