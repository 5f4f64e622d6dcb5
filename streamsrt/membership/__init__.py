"""The member's half of the streams rebalance protocol, as a pure machine."""
