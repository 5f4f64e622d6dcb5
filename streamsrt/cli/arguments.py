"""Arguments of the form ``KEY=VALUE``."""

from __future__ import annotations

from collections.abc import Iterable

from streamsrt.errors import ConfigError


def key_value_pairs(texts: Iterable[str], source: str = "--config") -> dict[str, str]:
    """The pairs, later ones over earlier ones. Raises ConfigError that names ``source``, an option or a file."""
    pairs = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise ConfigError(f"{source} {text}: expected KEY=VALUE")
        pairs[key.strip()] = value.strip()
    return pairs
