"""Snapshot feed for proxies: the whole snapshot, by GET and by push (docs/internals.md section 4)."""

from typing import Final

from diem.links.internal import InternalConnection
from diem.links.keepalive import LinkMonitor
from diem.links.listener import Reply
from diem.protocol.assignment import encode
from diem.protocol.codes import Close
from metadata.directory import Directory

SUBPROTOCOL: Final = "diem.watch.v1"
MAX_WATCHES: Final = 200
"""Maximum number of open links; beyond it, 503."""


class SnapshotFeed:
    """Serves ``GET /v1/partitions`` and, as a ``ChannelHandler``, the links of ``/watch``.

    A slow link buffers at most one snapshot: a blocked link skips changes and gets the latest snapshot on resuming.
    """

    subprotocol = SUBPROTOCOL

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._text: bytes | None = None
        self._links: dict[InternalConnection, bool] = {}
        """Open links, with True for those that missed a snapshot."""
        self._monitor = LinkMonitor("watching proxy")
        self._open = True

    def __len__(self) -> int:
        """Return the number of open links."""
        return len(self._links)

    def changed(self) -> None:
        """Send the changed snapshot on every unblocked link; the others get the latest on resuming."""
        snapshot = self._directory.snapshot
        self._text = None if snapshot is None else encode(snapshot)
        for connection in self._links:
            self._send(connection)

    def page(self) -> Reply:
        """Return the answer of ``GET /v1/partitions``."""
        if self._text is None:
            why = self._directory.why_not_ready() or ""
            return Reply(503, why.encode() + b"\n", headers={"Retry-After": "1"})
        return Reply(200, self._text, "application/json")

    async def run(self) -> None:
        """Monitor the links until cancelled."""
        await self._monitor.run()

    def stop(self) -> None:
        """Accept no more links, and close the open ones."""
        self._open = False
        for connection in list(self._links):
            connection.close(Close.GOING_AWAY)

    # ChannelHandler

    @property
    def accepting(self) -> bool:
        """True with a snapshot and fewer than :data:`MAX_WATCHES` links."""
        return self._open and self._text is not None and len(self._links) < MAX_WATCHES

    def opened(self, connection: InternalConnection) -> None:
        """Send the snapshot to a proxy that has connected."""
        self._monitor.add(connection)
        self._send(connection)

    def received(self, connection: InternalConnection, data: bytes) -> None:  # noqa: ARG002 - any message is an error
        """Close the link: proxies send nothing."""
        connection.close(Close.BAD_REQUEST, "a watch takes no messages")

    def blocked(self, connection: InternalConnection) -> None:
        """Do nothing: sending marks the links that miss a snapshot."""

    def resumed(self, connection: InternalConnection) -> None:
        """Send the latest snapshot if the link missed one."""
        if self._links.get(connection):
            self._send(connection)

    def closed(self, connection: InternalConnection) -> None:
        """Forget the link."""
        self._links.pop(connection, None)
        self._monitor.discard(connection)

    def _send(self, connection: InternalConnection) -> None:
        self._links[connection] = connection.paused
        if not connection.paused and self._text is not None:
            connection.send_text(self._text)
