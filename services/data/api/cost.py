"""Cost of an answer beyond an ordinary one, in requests, charged to the rate of its address."""

from typing import Final

from starlette.requests import Request
from starlette.types import Scope

BYTES_A_REQUEST: Final = 64 * 1024
"""Of an answer: the largest dataset costs one request."""
_KEY: Final = "diem.cost"


def add(request: Request, requests: float) -> None:
    """Count work that was done for a request: about 2.5 ms of a processor are one more request."""
    request.scope[_KEY] = request.scope.get(_KEY, 0.0) + requests


def of(scope: Scope, sent: int) -> float:
    """The cost of an answer of ``sent`` bytes, beyond the one request that was counted when it came."""
    return float(scope.get(_KEY, 0.0)) + max(0, sent - 1) // BYTES_A_REQUEST
