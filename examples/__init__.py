"""Applications to run, read and copy from."""
