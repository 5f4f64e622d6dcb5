"""Known APIs that this broker does not serve.

They are not advertised, so a client that checks does not send them. Otherwise the response is UNSUPPORTED_VERSION if
the API's response has a field for an error; if not, the connection is closed, as on Kafka.
"""

from __future__ import annotations

from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.schema import Message, message_class

_MESSAGE = "This broker does not serve this API."


def refusal(api_key: int) -> Message | None:
    """The answer that refuses a request, or None if the API has none for that."""
    answer = message_class(api_key, request=False)()
    if not hasattr(answer, "error_code"):
        return None
    answer.error_code = ErrorCode.UNSUPPORTED_VERSION
    if hasattr(answer, "error_message"):
        answer.error_message = _MESSAGE
    return answer
