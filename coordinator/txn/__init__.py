"""The transaction coordinator's machine: values and pure functions."""
