"""Consumer groups (KIP-848): the consumer rebalance protocol, and members of the classic one in the same group."""
