"""Features of ApiVersions by which a broker announces what it supports beyond its API versions."""

WHOLE_STREAMS_PROTOCOL = "streamsrt.streams.version"
"""The broker serves the whole of KIP-1071: topology epochs, warm-up tasks, source patterns."""
