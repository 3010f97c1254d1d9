"""Close codes and error codes (docs/protocol.md section 1); a test compares the TypeScript mirror."""

from enum import IntEnum, StrEnum


class Close(IntEnum):
    """Close codes of WebSocket connections. After 4000-4499 clients reconnect, after 4500-4999 they do not."""

    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    UNSUPPORTED_DATA = 1003
    INVALID_DATA = 1007
    POLICY_VIOLATION = 1008
    TOO_BIG = 1009
    INTERNAL_ERROR = 1011
    RESTART = 1012
    OVERLOAD = 1013
    NO_UPSTREAM = 1014
    MOVED = 4000
    TOKEN_EXPIRED = 4001
    SLOW = 4002
    RATE = 4003
    BAD_REQUEST = 4500
    UNAUTHORISED = 4501
    AUTH_TIMEOUT = 4502
    LOGGED_OUT = 4503
    CONNECTION_LIMIT = 4504
    SUBSCRIPTION_LIMIT = 4505
    UNSUPPORTED_VERSION = 4506
    TOO_MANY_ERRORS = 4509


_FINAL_STANDARD = {
    Close.NORMAL,
    Close.PROTOCOL_ERROR,
    Close.UNSUPPORTED_DATA,
    Close.INVALID_DATA,
    Close.POLICY_VIOLATION,
    Close.TOO_BIG,
}


def reconnects(code: int) -> bool:
    """Return whether a client reconnects after this close code: not if it is at fault and would repeat it."""
    return code < Close.BAD_REQUEST and code not in _FINAL_STANDARD


class ErrorCode(StrEnum):
    """The ``code`` of an ``error`` frame and of a rejected endpoint."""

    BAD_JSON = "bad_json"
    BAD_MESSAGE = "bad_message"
    BAD_NAME = "bad_name"
    TOO_MANY = "too_many"
    UNAUTHORISED = "unauthorised"
    FORBIDDEN = "forbidden"
    LIMIT = "limit"
    RATE = "rate"
    NOT_OWNER = "not_owner"
