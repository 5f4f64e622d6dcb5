"""Applications to run, to read and to copy."""
