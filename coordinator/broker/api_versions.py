"""ApiVersions: the APIs and versions that this broker supports.

An API that is not in :data:`SERVED` is not advertised, and a request for it ends the connection, as on Kafka.
"""

from __future__ import annotations

from coordinator.broker.broker import Broker, Handler, Request
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.features import WHOLE_STREAMS_PROTOCOL
from streamsrt.wire.schema import ApiKey
from streamsrt.wire.types import ApiVersionsResponse

SERVED: dict[int, tuple[int, int]] = {
    # Clients of librdkafka up to 2.6 drop compression unless Produce is advertised from 0 on; 3 is the first one served.
    ApiKey.PRODUCE: (0, 13),
    ApiKey.FETCH: (4, 18),
    ApiKey.LIST_OFFSETS: (1, 11),
    ApiKey.METADATA: (0, 13),
    ApiKey.OFFSET_COMMIT: (2, 10),
    ApiKey.OFFSET_FETCH: (1, 10),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.JOIN_GROUP: (0, 9),
    ApiKey.HEARTBEAT: (0, 4),
    ApiKey.LEAVE_GROUP: (0, 5),
    ApiKey.SYNC_GROUP: (0, 5),
    ApiKey.DESCRIBE_GROUPS: (0, 6),
    ApiKey.LIST_GROUPS: (0, 5),
    ApiKey.SASL_HANDSHAKE: (1, 1),
    ApiKey.API_VERSIONS: (0, 5),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (1, 6),
    ApiKey.DELETE_RECORDS: (0, 2),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
    ApiKey.END_TXN: (0, 4),
    ApiKey.WRITE_TXN_MARKERS: (1, 2),
    ApiKey.TXN_OFFSET_COMMIT: (0, 5),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.LIST_TRANSACTIONS: (0, 1),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    ApiKey.DESCRIBE_ACLS: (1, 3),
    ApiKey.CREATE_ACLS: (1, 3),
    ApiKey.DELETE_ACLS: (1, 3),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.ALTER_CONFIGS: (0, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (1, 2),
    ApiKey.DESCRIBE_LOG_DIRS: (1, 5),
    ApiKey.SASL_AUTHENTICATE: (0, 2),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.DELETE_GROUPS: (0, 2),
    ApiKey.ELECT_LEADERS: (0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: (0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.UPDATE_FEATURES: (0, 2),
    ApiKey.LIST_CONFIG_RESOURCES: (0, 1),
    ApiKey.OFFSET_DELETE: (0, 0),
    ApiKey.DESCRIBE_CLUSTER: (0, 2),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1),
    ApiKey.STREAMS_GROUP_HEARTBEAT: (0, 1),
    ApiKey.STREAMS_GROUP_DESCRIBE: (0, 1),
}

FEATURES = {
    "group.version": (0, 1),
    "metadata.version": (7, 29),
    "streams.version": (0, 1),
    "transaction.version": (0, 1),
}
"""Features as (minimum, finalised maximum): 1 for ``group.version`` and ``streams.version`` tells clients that consumer
and streams groups are served. With 2 for ``transaction.version`` clients would leave it to the broker to add partitions to
transactions and to raise epochs (KIP-890)."""

ANNOUNCED = {WHOLE_STREAMS_PROTOCOL: (1, 1)}
"""Features that are supported and have no level: clients that do not know them pass over them."""

_MINIMUM_ZERO_VERSION = 4
"""Clients that ask by an older version may take a feature with the minimum 0 for an error (KAFKA-17011, KAFKA-17492)."""


def api_versions(version: int, error_code: int = 0) -> ApiVersionsResponse:
    """Returns the response in this version with every served API; with an error for an unsupported version of
    ApiVersions."""
    supported = FEATURES | ANNOUNCED
    return ApiVersionsResponse(
        error_code=error_code,
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in sorted(SERVED.items())
        ],
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in supported.items()
            if low > 0 or version >= _MINIMUM_ZERO_VERSION
        ],
        finalized_features_epoch=1,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=high, min_version_level=high)
            for name, (_, high) in FEATURES.items()
        ],
    )


def handle_api_versions(broker: Broker, request: Request) -> ApiVersionsResponse:
    """Handles ApiVersions. From version 5 on, a client may name both the cluster and the node that it expects, or neither
    (KIP-1242)."""
    message = request.message
    meant = (message.cluster_id, message.node_id)
    if meant in {(None, -1), (broker.cluster_id, broker.node_id)}:
        return api_versions(request.header.api_version)
    half = message.cluster_id is None or message.node_id == -1
    return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST if half else ErrorCode.REBOOTSTRAP_REQUIRED)


HANDLERS: dict[int, Handler] = {ApiKey.API_VERSIONS: handle_api_versions}
