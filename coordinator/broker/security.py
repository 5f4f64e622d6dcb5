"""ACLs and SCRAM credentials by request; SASL where a listener has none (else: :mod:`coordinator.server.sasl`)."""

from __future__ import annotations

from coordinator.broker.broker import Answer, Broker, Handler, Request
from coordinator.broker.slices import whole
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.schema import ApiKey
from streamsrt.wire.types import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
)

_USERS_AT_ONCE = 64


def handle_alter_user_scram_credentials(broker: Broker, request: Request) -> Answer:
    message: AlterUserScramCredentialsRequest = request.message
    size = len(message.deletions) + len(message.upsertions)
    return broker.acknowledged(broker.carried_out(broker.credentials.altering(message), size))


def handle_describe_user_scram_credentials(broker: Broker, request: Request) -> Answer:
    message: DescribeUserScramCredentialsRequest = request.message
    described = broker.credentials.describing(message)
    count = len(message.users or ()) or len(broker.credentials)
    return whole(described) if count <= _USERS_AT_ONCE else broker.slices.run_alone(described)


def handle_create_acls(broker: Broker, request: Request) -> Answer:
    return broker.acknowledged(broker.acls.create(request.message))


def handle_describe_acls(broker: Broker, request: Request) -> Answer:
    return broker.acls.describe(request.message)


def handle_delete_acls(broker: Broker, request: Request) -> Answer:
    return broker.acknowledged(broker.acls.delete(request.message))


def handle_sasl_handshake(broker: Broker, request: Request) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])


def handle_sasl_authenticate(broker: Broker, request: Request) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received on a listener without SASL",
    )


HANDLERS: dict[int, Handler] = {
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: handle_alter_user_scram_credentials,
    ApiKey.CREATE_ACLS: handle_create_acls,
    ApiKey.DELETE_ACLS: handle_delete_acls,
    ApiKey.DESCRIBE_ACLS: handle_describe_acls,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: handle_describe_user_scram_credentials,
    ApiKey.SASL_AUTHENTICATE: handle_sasl_authenticate,
    ApiKey.SASL_HANDSHAKE: handle_sasl_handshake,
}
