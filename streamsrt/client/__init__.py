"""Connections to a broker: the only package of the runtime that uses asyncio."""
