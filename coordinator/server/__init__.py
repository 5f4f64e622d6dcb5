"""Sockets, dispatch and the entry point of the bundled broker."""
