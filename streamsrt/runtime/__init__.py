"""The processing thread: poll, process, commit."""
