"""State stores: bytes in RocksDB or memory, behind a write-back cache of values."""
