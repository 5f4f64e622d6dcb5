"""A refused request: an error code and a text, and no change."""

from __future__ import annotations

from streamsrt.wire.error_codes import ErrorCode


class Refused(Exception):
    """Ends the handling of a request; the handler's caller converts it to an error response."""

    def __init__(self, code: ErrorCode, text: str = "", is_same_topology: bool = False) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.is_same_topology = is_same_topology
