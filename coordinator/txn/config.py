"""Settings of the transaction coordinator."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """``transaction.max.timeout.ms`` and ``transactional.id.expiration.ms``, with Kafka's defaults."""

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 604_800_000
