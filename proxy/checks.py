"""Pure: which names of a request are refused at the proxy already, so that servers see none of them."""

from collections.abc import Collection

from diem.protocol import endpoints, messages
from diem.protocol.messages import Refusal


def refusal(name: str, held: Collection[str], limit: int) -> Refusal | None:
    """Why a client that holds ``held`` may not subscribe to ``name``; None when it may."""
    if not endpoints.is_valid(name):
        return messages.BAD_NAME
    if name not in held and len(held) >= limit:
        return messages.over_limit(limit)
    return None
