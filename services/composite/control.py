"""Control channel of a composite: the number of pairs (WebSocket ``/control``, with the shared key)."""

from collections.abc import Callable
from typing import Final

import orjson

from diem.links.internal import InternalConnection
from diem.process import security_log
from diem.process.security_log import UNIX_PEER, SecurityEvent
from diem.protocol.codes import Close

SUBPROTOCOL: Final = "diem.control.v1"
PATH: Final = "/control"
MAX_LINKS: Final = 8


class ControlChannel:
    """Handler of the control channel.

    ``{"pairs": N}`` sets the number of pairs, at most ``most``, ``{}`` queries it; both are answered with
    ``{"pairs": N}``. Anything else is answered with ``{"error": "..."}`` and changes nothing. At most
    :data:`MAX_LINKS` links are open at once.
    """

    subprotocol = SUBPROTOCOL

    def __init__(self, pairs: Callable[[], int], scale: Callable[[int], None], most: int) -> None:
        self._pairs = pairs
        self._scale = scale
        self._most = most
        self._links: set[InternalConnection] = set()

    @property
    def accepting(self) -> bool:
        """True if another link is accepted now."""
        return len(self._links) < MAX_LINKS

    def opened(self, connection: InternalConnection) -> None:
        """Register a link; the peer sends the first message."""
        self._links.add(connection)

    def received(self, connection: InternalConnection, data: bytes) -> None:
        """Apply a request and answer with the resulting number."""
        before = self._pairs()
        error = self._apply(data)
        if self._pairs() != before:
            address = connection.peer or UNIX_PEER
            security_log.audit(SecurityEvent.SCALED, address=address, before=before, pairs=self._pairs())
        connection.send_text(orjson.dumps({"pairs": self._pairs()} if error is None else {"error": error}))

    def blocked(self, connection: InternalConnection) -> None:
        """Close the link: its peer does not read the answers."""
        connection.close(Close.OVERLOAD)

    def resumed(self, connection: InternalConnection) -> None:
        """Do nothing: a blocked link is closed."""

    def closed(self, connection: InternalConnection) -> None:
        """Unregister a link."""
        self._links.discard(connection)

    def _apply(self, data: bytes) -> str | None:
        try:
            request = orjson.loads(data)
        except ValueError:
            return "not JSON"
        if request == {}:
            return None
        pairs = request.get("pairs") if isinstance(request, dict) and len(request) == 1 else None
        if type(pairs) is not int or not 1 <= pairs <= self._most:
            return f'expected {{"pairs": N}} with N from 1 to {self._most}, or {{}}'
        self._scale(pairs)
        return None
