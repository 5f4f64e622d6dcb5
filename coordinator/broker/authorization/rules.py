"""The rule of each API: the rights that it requires. An API without a rule is not served if an authorizer is set."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from coordinator.broker.authorization import cluster, groups, records, topics, transactions
from coordinator.broker.authorization.guard import Guard, for_cluster, unguarded
from coordinator.broker.broker import Handler
from coordinator.security.acls import Operation
from streamsrt.wire.schema import ApiKey

_O = Operation

GUARDS: Mapping[int, Guard] = {
    ApiKey.ADD_OFFSETS_TO_TXN: transactions.add_offsets,
    ApiKey.ADD_PARTITIONS_TO_TXN: transactions.add_partitions,
    ApiKey.ALTER_CLIENT_QUOTAS: for_cluster(_O.ALTER_CONFIGS, refusal=cluster.no_alter_client_quotas),
    ApiKey.ALTER_CONFIGS: cluster.alter_configs,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: for_cluster(_O.ALTER, refusal=cluster.no_alter_partition_reassignments),
    ApiKey.ALTER_REPLICA_LOG_DIRS: for_cluster(_O.ALTER, refusal=cluster.no_alter_replica_log_dirs),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: for_cluster(_O.ALTER, refusal=cluster.no_alter_user_scram_credentials),
    ApiKey.API_VERSIONS: unguarded,
    ApiKey.CONSUMER_GROUP_DESCRIBE: groups.describe_consumer_groups,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: groups.consumer_group_heartbeat,
    ApiKey.CREATE_ACLS: for_cluster(_O.ALTER, refusal=cluster.no_create_acls),
    ApiKey.CREATE_PARTITIONS: topics.create_partitions,
    ApiKey.CREATE_TOPICS: topics.create_topics,
    ApiKey.DELETE_ACLS: for_cluster(_O.ALTER, refusal=cluster.no_delete_acls),
    ApiKey.DELETE_GROUPS: groups.delete_groups,
    ApiKey.DELETE_RECORDS: records.delete_records,
    ApiKey.DELETE_TOPICS: topics.delete_topics,
    ApiKey.DESCRIBE_ACLS: for_cluster(_O.DESCRIBE, refusal=cluster.no_describe_acls),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: for_cluster(_O.DESCRIBE_CONFIGS, refusal=cluster.no_describe_client_quotas),
    ApiKey.DESCRIBE_CLUSTER: unguarded,
    ApiKey.DESCRIBE_CONFIGS: cluster.describe_configs,
    ApiKey.DESCRIBE_GROUPS: groups.describe_groups,
    ApiKey.DESCRIBE_LOG_DIRS: for_cluster(_O.DESCRIBE, refusal=cluster.no_describe_log_dirs),
    ApiKey.DESCRIBE_PRODUCERS: transactions.describe_producers,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: topics.describe_topic_partitions,
    ApiKey.DESCRIBE_TRANSACTIONS: transactions.describe_transactions,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: for_cluster(
        _O.DESCRIBE, refusal=cluster.no_describe_user_scram_credentials
    ),
    ApiKey.ELECT_LEADERS: for_cluster(_O.ALTER, refusal=cluster.no_elect_leaders),
    ApiKey.END_TXN: transactions.end_txn,
    ApiKey.FETCH: records.fetch,
    ApiKey.FIND_COORDINATOR: groups.find_coordinator,
    ApiKey.HEARTBEAT: groups.read_group,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: cluster.incremental_alter_configs,
    ApiKey.INIT_PRODUCER_ID: transactions.init_producer_id,
    ApiKey.JOIN_GROUP: groups.read_group,
    ApiKey.LEAVE_GROUP: groups.read_group,
    ApiKey.LIST_CONFIG_RESOURCES: for_cluster(_O.DESCRIBE_CONFIGS, refusal=cluster.no_list_config_resources),
    ApiKey.LIST_GROUPS: groups.list_groups,
    ApiKey.LIST_OFFSETS: records.list_offsets,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: for_cluster(_O.DESCRIBE, refusal=cluster.no_list_partition_reassignments),
    ApiKey.LIST_TRANSACTIONS: transactions.list_transactions,
    ApiKey.METADATA: topics.metadata,
    ApiKey.OFFSET_COMMIT: groups.offset_commit,
    ApiKey.OFFSET_DELETE: groups.offset_delete,
    ApiKey.OFFSET_FETCH: groups.offset_fetch,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: records.offset_for_leader_epoch,
    ApiKey.PRODUCE: records.produce,
    ApiKey.SASL_AUTHENTICATE: unguarded,
    ApiKey.SASL_HANDSHAKE: unguarded,
    ApiKey.STREAMS_GROUP_DESCRIBE: groups.describe_streams_groups,
    ApiKey.STREAMS_GROUP_HEARTBEAT: groups.streams_group_heartbeat,
    ApiKey.SYNC_GROUP: groups.read_group,
    ApiKey.TXN_OFFSET_COMMIT: transactions.txn_offset_commit,
    ApiKey.UPDATE_FEATURES: for_cluster(_O.ALTER, refusal=cluster.no_update_features),
    ApiKey.WRITE_TXN_MARKERS: for_cluster(_O.CLUSTER_ACTION, _O.ALTER, refusal=cluster.no_write_txn_markers),
}


def guarded(handlers: Mapping[int, Handler]) -> dict[int, Handler]:
    """Wraps the handlers in their rules. Raises KeyError for one without a rule."""
    return {key: partial(GUARDS[key], handler) for key, handler in handlers.items()}
