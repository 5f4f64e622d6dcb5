"""The streams rebalance protocol (KIP-1071): the machine of streams groups."""
