"""Client tags of streams groups (KIP-1071) that mean something to our members and to the bundled broker."""

TOPOLOGY_DIGEST = "topology.digest"
"""The start of the topology's digest. Equal topics and stores make equal metadata; this tells what is between them."""

LOSE_IN_FLIGHT = "upgrade.lose"
"""``true``: records in flight that only an older version of the topology could read may be lost."""
