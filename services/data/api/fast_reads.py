"""The fast path of ``GET /v1/data/{endpoint}``: versions in memory, for readers without a key.

The rules are those of the routes: rights, limits, counts and header fields are the guard's, versions and their caching
those of :mod:`services.data.api.reads`. Everything else is left to the routes: other resources, keys and tokens,
versions to be read from the store, and all errors but refusals.
"""

import re
from typing import Final

from starlette.responses import Response
from starlette.types import Message, Scope

from diem.links.fast_path import FastAnswer, RequestHead, lines
from diem.links.rest import RequestDecision
from services.data.api import cost
from services.data.api.guard import Guard
from services.data.api.reads import DataReads, Found, Selected, answer
from services.data.api.requests import PREFIX
from services.data.errors import DataError

_PREFIX: Final = f"{PREFIX}/".encode()
_NAMED: Final = re.compile(rb"version=([1-9][0-9]{0,17})")
_UNCHANGED: Final = 1024
"""Maximum number of cached header fields of 304s; a full cache is cleared."""


class FastReads:
    """A :class:`~diem.links.fast_path.FastPath`.

    Args:
        reads: shared with the routes.
        guard: of the listener.
    """

    def __init__(self, reads: DataReads, guard: Guard) -> None:
        self._reads = reads
        self._guard = guard
        self._unchanged: dict[tuple[int, str, str], bytes] = {}

    def __call__(self, head: RequestHead, address: str) -> FastAnswer | None:
        """Answer a read, or leave it to the routes."""
        fields = head.fields
        path, _, query = head.target.partition(b"?")
        if "authorization" in fields or not path.startswith(_PREFIX) or b"%" in path:
            return None
        if not self._guard.is_own_host(fields["host"]):
            return None
        selected = self._select(head, path[len(PREFIX) :].decode("ascii"), query)
        found = None if selected is None else self._reads.in_memory(selected)
        if selected is None or found is None:
            return None
        # The request is counted from here on.
        origin = fields.get("origin")
        decision = self._guard.decide_plain(address) if origin is None else None
        if decision is None:
            scope: Scope = {
                "type": "http",
                "method": head.method,
                "path": PREFIX + selected.endpoint,
                "query_string": query,
                "client": (address, 0),
                "headers": [] if origin is None else [(b"origin", origin.encode("ascii"))],
            }
            decision = self._guard.decide_keyless(scope)
            if isinstance(decision.app, Response):
                return self._refuse(head.method, decision.app, decision)
        caching = self._reads.caching(selected, head.target, origin, has_key=False)
        return self._answer(head.method, address, found, caching, decision)

    def _select(self, head: RequestHead, endpoint: str, query: bytes) -> Selected | None:
        named = _NAMED.fullmatch(query) if query else None
        if query and named is None:
            return None
        version = None if named is None else int(named[1])
        try:
            return self._reads.select(endpoint, version, head.fields.get("accept"), head.fields.get("if-none-match"))
        except DataError:
            return None

    def _answer(self, method: str, address: str, found: Found, caching: str, decision: RequestDecision) -> FastAnswer:
        status, body = (304, b"") if found.rendered is None else (200, found.rendered.body)
        fields = _fields(found, caching, decision) if decision.fields else self._common_fields(found, caching, decision)
        self._guard.requests[method, status] += 1
        if decision.pays:
            self._guard.charge_address(address, cost.of_bytes(len(body)))
        return FastAnswer(status, fields, b"" if method == "HEAD" else body)

    def _common_fields(self, found: Found, caching: str, decision: RequestDecision) -> bytes:
        """Return what :func:`_fields` does for a decision without fields of its own, which adds the same to all."""
        if found.rendered is not None:
            made = found.rendered.heads.get(caching)
            if made is None:
                made = found.rendered.heads[caching] = _fields(found, caching, decision)
            return made
        key = (found.version, found.format.suffix, caching)
        made = self._unchanged.get(key)
        if made is None:
            if len(self._unchanged) >= _UNCHANGED:
                self._unchanged.clear()
            made = self._unchanged[key] = _fields(found, caching, decision)
        return made

    def _refuse(self, method: str, refusal: Response, decision: RequestDecision) -> FastAnswer:
        start: Message = {"status": refusal.status_code, "headers": refusal.raw_headers}
        self._guard.complete(start, method, decision)
        body = b"" if method == "HEAD" else bytes(refusal.body)
        return FastAnswer(refusal.status_code, lines(start["headers"]), body)


def _fields(found: Found, caching: str, decision: RequestDecision) -> bytes:
    """Return the header fields of an answer as lines."""
    return lines(decision.complete(answer(found, caching).raw_headers))
