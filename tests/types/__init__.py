"""Code as users write it, for type checkers; none of it runs."""
