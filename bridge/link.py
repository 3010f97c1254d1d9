"""The link to the one reader: what is written waits while the transport does not take it."""

import asyncio

from diem.links.internal import InternalConnection
from diem.protocol import feed


class BridgeLink:
    """One reader's connection, from its opening to its end."""

    def __init__(self, connection: InternalConnection) -> None:
        self.connection = connection
        self.session: asyncio.Task[None] | None = None
        """What serves the reader, once it has said where to begin."""
        self._resumed = asyncio.Event()

    @property
    def paused(self) -> bool:
        """Whether nothing may be written now."""
        return self.connection.paused

    def say(self, message: feed.Control) -> None:
        """Write a control message: short, and not held up."""
        self.connection.send_text(feed.encode(message))

    async def writable(self) -> None:
        """Wait until the transport takes data again."""
        while self.connection.paused:
            self._resumed.clear()
            await self._resumed.wait()

    def resumed(self) -> None:
        """The transport takes data again."""
        self._resumed.set()

    def end(self) -> None:
        """The reader is gone, or another one has taken its place."""
        # Once: a second one would cut short how the session takes leave of Kafka.
        if self.session is not None and not self.session.cancelling():
            self.session.cancel()
