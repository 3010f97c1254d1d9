"""The last refused writes, and what the store has of an endpoint, for ``diem why``: read on the internal listener.

The module owns one list for the process, as :mod:`diem.process.security_log` does for refused clients.
"""

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Scope

from diem.protocol.update import iso
from services.data.api.requests import PREFIX
from services.data.store.store import Store

PATH: Final = "/v1/endpoints"
MAX_REFUSED: Final = 256
MAX_DETAIL: Final = 300
NEIGHBOURS: Final = 500
"""Names before and after a missing one, among which a reader finds similar ones."""
_WRITES: Final = frozenset({"PUT", "PATCH", "POST", "DELETE"})


class RefusedWrite(NamedTuple):
    """A write that changed nothing."""

    endpoint: str
    time: str
    detail: str


_latest: Final[deque[RefusedWrite]] = deque(maxlen=MAX_REFUSED)


def record(scope: Scope, detail: str) -> None:
    """Remember the refused write of one endpoint; no-op for other requests."""
    path: str = scope["path"]
    if scope["method"] in _WRITES and path.startswith(f"{PREFIX}/"):
        _latest.append(RefusedWrite(path.removeprefix(PREFIX), iso(time.time_ns() // 1_000_000), detail[:MAX_DETAIL]))


def endpoint_route(store: Store, owner_of: Callable[[str], str | None]) -> Route:
    """Return the route of the internal listener that answers what the store has of an endpoint."""

    async def read(request: Request) -> Response:
        endpoint: str = request.path_params["endpoint"]
        head = store.index.heads.get(endpoint)
        refused = next((each for each in reversed(_latest) if each.endpoint == endpoint), None)
        known = {
            "version": None if head is None else head.version,
            "time": None if head is None else iso(head.changed_ms),
            "gone": head is not None and head.gone,
            "source": owner_of(endpoint),
            "refused": None if refused is None else {"time": refused.time, "detail": refused.detail},
            "near": [] if head is not None else _neighbours(store.index.names, endpoint),
        }
        return Response(orjson.dumps(known), media_type="application/json")

    return Route(PATH + "{endpoint:rest}", read, methods=["GET"])


def _neighbours(names: Sequence[str], name: str) -> list[str]:
    at = bisect_left(names, name)
    return [*names[max(0, at - NEIGHBOURS) : at + NEIGHBOURS]]
