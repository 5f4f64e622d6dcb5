"""Tagged fields that are not Kafka's: the bundled broker adds them to Kafka's messages, and our clients read them.

A reader that does not know a tag skips it (KIP-482), so every other client gets Kafka's message. Kafka numbers its tags
from 0; these are far above.
"""

WHY_ASSIGNED_TAG = 10_000
"""In StreamsGroupHeartbeatResponse, beside task lists: why the group was assigned anew, as UTF-8 text."""

SAME_TOPOLOGY_TAG = 10_003
"""There too, beside an error code: the refused member has the group's topology, under an earlier epoch. Without a value."""

REBALANCES_TAG = 10_001
"""In StreamsGroupDescribeResponse.DescribedGroup: the latest assignments of the group, the newest last, as JSON: a list of
``{"epoch", "at_ms", "reasons": [text], "moves": [text]}``."""

VERSIONS_TAG = 10_002
"""There too, where the group knows versions before its own, or the digest of its own: all that it knows, the newest first,
as JSON: a list of ``{"epoch", "repartition_topics": [name], "is_sent_back", "has_taken_over", "is_same", "digest"}``."""
