"""The internal side, for proxies: the whole snapshot, by GET and pushed (docs/protocol.md section 4)."""

from typing import Final

from diem.links.acceptor import Reply
from diem.links.internal import InternalConnection
from diem.links.link_monitor import LinkMonitor
from diem.protocol.assignment import encode
from diem.protocol.codes import Close
from metadata.directory import Directory

SUBPROTOCOL: Final = "diem.watch.v1"
MAX_WATCHES: Final = 200


class Partitions:
    """Serves ``GET /v1/partitions`` and the links of ``/watch`` (it is an ``End``).

    A link that is slow holds at most one snapshot: what changes meanwhile is sent when it takes data again.
    """

    subprotocol = SUBPROTOCOL

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._text: bytes | None = None
        self._behind: dict[InternalConnection, bool] = {}
        self._keeper = LinkMonitor("watching proxy")
        self._open = True

    def __len__(self) -> int:
        """Links that are open."""
        return len(self._behind)

    def changed(self) -> None:
        """The snapshot is another one: send it to whoever can take it."""
        snapshot = self._directory.snapshot
        self._text = None if snapshot is None else encode(snapshot)
        for connection in self._behind:
            self._send(connection)

    def page(self) -> Reply:
        """The answer of ``GET /v1/partitions``."""
        if self._text is None:
            why = self._directory.why_not_ready() or ""
            return Reply(503, why.encode() + b"\n", headers={"Retry-After": "1"})
        return Reply(200, self._text, "application/json")

    async def run(self) -> None:
        """Watch over the links until cancelled."""
        await self._keeper.run()

    def stop(self) -> None:
        """Take no more links, and close those that are open."""
        self._open = False
        for connection in list(self._behind):
            connection.close(Close.GOING_AWAY)

    # End

    @property
    def accepting(self) -> bool:
        """Whether there is something to tell, and room for one more link."""
        return self._open and self._text is not None and len(self._behind) < MAX_WATCHES

    def opened(self, connection: InternalConnection) -> None:
        """A proxy has connected: tell it everything."""
        self._keeper.add(connection)
        self._send(connection)

    def received(self, connection: InternalConnection, data: bytes) -> None:  # noqa: ARG002 - nothing may be said
        """A proxy listens, and says nothing."""
        connection.close(Close.BAD_REQUEST, "a watch takes no messages")

    def blocked(self, connection: InternalConnection) -> None:
        """Nothing: what it misses is noted when there is something."""

    def resumed(self, connection: InternalConnection) -> None:
        """The link takes data again."""
        if self._behind.get(connection):
            self._send(connection)

    def closed(self, connection: InternalConnection) -> None:
        """A proxy is gone."""
        self._behind.pop(connection, None)
        self._keeper.discard(connection)

    def _send(self, connection: InternalConnection) -> None:
        self._behind[connection] = connection.paused
        if not connection.paused and self._text is not None:
            connection.send_text(self._text)
