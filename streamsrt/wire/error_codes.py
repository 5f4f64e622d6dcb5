"""The numbered errors of the protocol (Apache Kafka 4.4): names, which of them may be retried, what they mean.

Rule: a code that a newer broker invents is never an error of this module. It has a name, is not retriable and has a
message, so that it can be reported.
"""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """Error codes by their names in Kafka (``org.apache.kafka.common.protocol.Errors``)."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133
    GROUP_DELETION_FAILED = 134
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135
    CONTROLLER_ID_NOT_REGISTERED = 136


# Errors that the same request may not meet again: Kafka's subclasses of RetriableException.
RETRIABLE = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)

MESSAGES: dict[int, str] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "The broker had an unexpected error; its log has the details.",
    ErrorCode.NONE: "",
    ErrorCode.OFFSET_OUT_OF_RANGE: "The offset is before the start or after the end of the partition.",
    ErrorCode.CORRUPT_MESSAGE: "The record batch is damaged: checksum, size or a missing key of a compacted topic.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "The topic or partition is not on this broker.",
    ErrorCode.INVALID_FETCH_SIZE: "The fetch size is not valid.",
    ErrorCode.LEADER_NOT_AVAILABLE: "The partition has no leader at the moment; an election is under way.",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "This broker is not the leader of the partition, or has no replica of it.",
    ErrorCode.REQUEST_TIMED_OUT: "The request took longer than its timeout.",
    ErrorCode.BROKER_NOT_AVAILABLE: "The broker is not available.",
    ErrorCode.REPLICA_NOT_AVAILABLE: "This broker has no replica of the partition.",
    ErrorCode.MESSAGE_TOO_LARGE: "The record batch is larger than the broker or the topic allows (max.message.bytes).",
    ErrorCode.STALE_CONTROLLER_EPOCH: "The controller has moved to another broker.",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "The offset's metadata is longer than offset.metadata.max.bytes.",
    ErrorCode.NETWORK_EXCEPTION: "The broker closed the connection before it answered.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is still reading its log.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available at the moment.",
    ErrorCode.NOT_COORDINATOR: "Another broker is the coordinator.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The topic name is not valid, or the operation is not allowed on this topic.",
    ErrorCode.RECORD_LIST_TOO_LARGE: "The record batch is larger than a log segment.",
    ErrorCode.NOT_ENOUGH_REPLICAS: "Fewer replicas are in sync than min.insync.replicas requires; nothing was written.",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "Written to fewer in-sync replicas than min.insync.replicas.",
    ErrorCode.INVALID_REQUIRED_ACKS: "acks must be 0, 1 or -1.",
    ErrorCode.ILLEGAL_GENERATION: "The generation is not the current one of the group.",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "The member has no protocol in common with the other members of the group.",
    ErrorCode.INVALID_GROUP_ID: "The group id is not valid.",
    ErrorCode.UNKNOWN_MEMBER_ID: "The group has no such member.",
    ErrorCode.INVALID_SESSION_TIMEOUT: "The session timeout is outside the limits of the broker.",
    ErrorCode.REBALANCE_IN_PROGRESS: "The group is rebalancing; the member has to join again.",
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: "The commit would be larger than a record may be.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Not authorized for the topic.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Not authorized for the group.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Not authorized for this operation on the cluster.",
    ErrorCode.INVALID_TIMESTAMP: "The timestamp of a record is further from the broker's clock than the topic allows.",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "The broker does not offer this SASL mechanism.",
    ErrorCode.ILLEGAL_SASL_STATE: "The request is not valid in this state of the SASL exchange.",
    ErrorCode.UNSUPPORTED_VERSION: "The broker does not support this version of the API.",
    ErrorCode.TOPIC_ALREADY_EXISTS: "A topic with this name already exists.",
    ErrorCode.INVALID_PARTITIONS: "The number of partitions is not valid.",
    ErrorCode.INVALID_REPLICATION_FACTOR: "The replication factor is below 1 or larger than the number of brokers.",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "The assignment of replicas to brokers is not valid.",
    ErrorCode.INVALID_CONFIG: "A configuration value is not valid.",
    ErrorCode.NOT_CONTROLLER: "Another broker is the controller.",
    ErrorCode.INVALID_REQUEST: "The request breaks a rule of its API.",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "The message format of the topic is too old for this operation.",
    ErrorCode.POLICY_VIOLATION: "A policy of the cluster forbids these parameters.",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "A batch of this producer is missing before this one.",
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "This batch of the producer was written already.",
    ErrorCode.INVALID_PRODUCER_EPOCH: "The epoch is old: another producer with this id has taken over.",
    ErrorCode.INVALID_TXN_STATE: "The transaction is not in a state that allows this operation.",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "The producer id does not belong to this transactional id.",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "The transaction timeout is above transaction.max.timeout.ms of the broker.",
    ErrorCode.CONCURRENT_TRANSACTIONS: "The transaction before this one is still being completed.",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "The transaction marker comes from a coordinator that was replaced.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Not authorized for the transactional id.",
    ErrorCode.SECURITY_DISABLED: "The broker runs without an authorizer.",
    ErrorCode.OPERATION_NOT_ATTEMPTED: "Not tried, because another part of the request failed.",
    ErrorCode.KAFKA_STORAGE_ERROR: "The broker could not read or write its disk.",
    ErrorCode.LOG_DIR_NOT_FOUND: "The broker has no such log directory.",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "The credentials were refused.",
    ErrorCode.UNKNOWN_PRODUCER_ID: "The broker no longer knows the producer id; its records may have been deleted.",
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "The replicas of the partition are being moved.",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "Delegation tokens are not enabled.",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "There is no such delegation token.",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "The principal neither owns nor may renew the delegation token.",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "This kind of connection may not ask for delegation tokens.",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "Not authorized for the delegation token.",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "The delegation token has expired.",
    ErrorCode.INVALID_PRINCIPAL_TYPE: "The principal type is not supported.",
    ErrorCode.NON_EMPTY_GROUP: "The group still has members.",
    ErrorCode.GROUP_ID_NOT_FOUND: "There is no such group.",
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: "The broker does not know the fetch session.",
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: "The epoch of the fetch session is not the expected one.",
    ErrorCode.LISTENER_NOT_FOUND: "The leader has no listener that matches the one on which the request was received.",
    ErrorCode.TOPIC_DELETION_DISABLED: "The broker does not allow topics to be deleted.",
    ErrorCode.FENCED_LEADER_EPOCH: "The client's leader epoch is older than the broker's.",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "The client's leader epoch is newer than the broker's.",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "The client cannot read the compression of the partition.",
    ErrorCode.STALE_BROKER_EPOCH: "The broker's epoch is old.",
    ErrorCode.OFFSET_NOT_AVAILABLE: "A new leader does not know its high watermark yet.",
    ErrorCode.MEMBER_ID_REQUIRED: "The member has to join again with the member id that it was given.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader is not available.",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "The group has reached its maximum number of members.",
    ErrorCode.FENCED_INSTANCE_ID: "Another member has joined with the same group.instance.id.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "No replica that could lead the partition is available.",
    ErrorCode.ELECTION_NOT_NEEDED: "The partition already has the leader that an election would give it.",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "The replicas of the partition are not being moved.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "The group is subscribed to the topic, so its offsets cannot be deleted.",
    ErrorCode.INVALID_RECORD: "The broker refused a record.",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "A transaction that commits offsets of this partition is still open.",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "A quota is exceeded; try again later.",
    ErrorCode.PRODUCER_FENCED: "A newer producer with the same transactional id has taken over.",
    ErrorCode.RESOURCE_NOT_FOUND: "The named resource does not exist.",
    ErrorCode.DUPLICATE_RESOURCE: "The request names a resource twice.",
    ErrorCode.UNACCEPTABLE_CREDENTIAL: "The credential does not meet the rules for credentials.",
    ErrorCode.INCONSISTENT_VOTER_SET: "Sender or receiver is not among the expected voters.",
    ErrorCode.INVALID_UPDATE_VERSION: "The version to update to is not valid.",
    ErrorCode.FEATURE_UPDATE_FAILED: "The features of the cluster could not be updated.",
    ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: "The principal of a forwarded request could not be read.",
    ErrorCode.SNAPSHOT_NOT_FOUND: "There is no such snapshot.",
    ErrorCode.POSITION_OUT_OF_RANGE: "The position lies outside of the snapshot.",
    ErrorCode.UNKNOWN_TOPIC_ID: "This broker has no topic with this id; it may have been deleted and recreated.",
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "The broker id is in use.",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "No broker with this id is registered.",
    ErrorCode.INCONSISTENT_TOPIC_ID: "The topic id of the request does not match that of the log.",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "The request names another cluster.",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "There is no such transactional id.",
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: "A fetch session mixes topic names and topic ids.",
    ErrorCode.INELIGIBLE_REPLICA: "A replica may not be in the new set of in-sync replicas.",
    ErrorCode.NEW_LEADER_ELECTED: "The partition was altered and has another leader now.",
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: "The offset is no longer on the broker's own disk.",
    ErrorCode.FENCED_MEMBER_EPOCH: "The member is fenced: it has to give up all that it owns and join again.",
    ErrorCode.UNRELEASED_INSTANCE_ID: "A member that has not left uses this group.instance.id.",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "The group does not support the assignor or its version.",
    ErrorCode.STALE_MEMBER_EPOCH: "The member epoch is old; the next heartbeat brings the current one.",
    ErrorCode.MISMATCHED_ENDPOINT_TYPE: "The request was sent to the wrong kind of server.",
    ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: "This kind of endpoint is not supported.",
    ErrorCode.UNKNOWN_CONTROLLER_ID: "There is no controller with this id.",
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID: "The telemetry subscription is unknown or outdated.",
    ErrorCode.TELEMETRY_TOO_LARGE: "The telemetry is larger than the broker accepts.",
    ErrorCode.INVALID_REGISTRATION: "The controller refused the registration of the broker.",
    ErrorCode.TRANSACTION_ABORTABLE: "The transaction failed; abort it to continue with the same producer.",
    ErrorCode.INVALID_RECORD_STATE: "The record is not in a state in which it can be acknowledged.",
    ErrorCode.SHARE_SESSION_NOT_FOUND: "The broker does not know the share session.",
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: "The epoch of the share session is not the expected one.",
    ErrorCode.FENCED_STATE_EPOCH: "The state epoch is not the coordinator's.",
    ErrorCode.INVALID_VOTER_KEY: "The voter key does not match that of the receiving replica.",
    ErrorCode.DUPLICATE_VOTER: "The voter is already in the set of voters.",
    ErrorCode.VOTER_NOT_FOUND: "The voter is not in the set of voters.",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "The regular expression is not valid.",
    ErrorCode.REBOOTSTRAP_REQUIRED: "The metadata is too old; start from the bootstrap servers again.",
    ErrorCode.STREAMS_INVALID_TOPOLOGY: "The topology is not valid.",
    ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH: "The topology epoch is not valid.",
    ErrorCode.STREAMS_TOPOLOGY_FENCED: "The topology epoch is older than the group's.",
    ErrorCode.SHARE_SESSION_LIMIT_REACHED: "The broker has reached its maximum number of share sessions.",
    ErrorCode.GROUP_DELETION_FAILED: "The group could not be deleted; the error message of its entry says why.",
    ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED: "Not stored; the error message says why.",
    ErrorCode.CONTROLLER_ID_NOT_REGISTERED: "No controller with this id is registered.",
}


def error_name(code: int) -> str:
    """Kafka's name of the code, or ``UNKNOWN_ERROR_CODE_<number>`` for a code of a newer broker."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"UNKNOWN_ERROR_CODE_{code}"


def is_retriable(code: int) -> bool:
    """Whether Kafka's clients repeat a request that was answered with this code."""
    return code in RETRIABLE


def error_message(code: int) -> str:
    """Returns the meaning of the code in a sentence; empty for NONE. For responses without an error message of their own."""
    message = MESSAGES.get(code)
    return f"The broker returned error code {code}, which this version does not know." if message is None else message
