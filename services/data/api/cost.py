"""Extra cost of an answer in requests, charged to the rate of the client's address."""

from typing import Final

from starlette.requests import Request
from starlette.types import Scope

BYTES_PER_REQUEST: Final = 64 * 1024
"""Bytes of an answer per request charged: the largest dataset costs one."""
_KEY: Final = "diem.cost"


def add(request: Request, requests: float) -> None:
    """Add the cost of work for a request; one request stands for about 2.5 ms of CPU."""
    request.scope[_KEY] = request.scope.get(_KEY, 0.0) + requests


def of(scope: Scope, sent: int) -> float:
    """Return the cost of an answer of ``sent`` bytes, beyond the one request counted at its arrival."""
    return float(scope.get(_KEY, 0.0)) + of_bytes(sent)


def of_bytes(sent: int) -> int:
    """Return the cost due to the ``sent`` bytes."""
    return max(0, sent - 1) // BYTES_PER_REQUEST
