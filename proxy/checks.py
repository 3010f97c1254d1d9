"""Pure: which names of a request are refused at the proxy already, so that servers see none of them."""

from collections.abc import Collection

from diem.protocol import endpoints
from diem.protocol.codes import ErrorCode
from diem.protocol.messages import Refusal


def refusal(name: str, held: Collection[str], limit: int) -> Refusal | None:
    """Why a client that holds ``held`` may not subscribe to ``name``; None when it may."""
    try:
        endpoints.check(name)
    except endpoints.BadName as error:
        return Refusal(ErrorCode.BAD_NAME, error.reason)
    if name not in held and len(held) >= limit:
        return Refusal(ErrorCode.LIMIT, f"more than {limit} subscriptions")
    return None
