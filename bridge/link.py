"""The link to a bridge's reader, written to by the session and its side tasks."""

import asyncio

from diem.links.internal import InternalConnection
from diem.protocol import feed


class BridgeLink:
    """The link to one reader: writers wait while its transport is paused."""

    def __init__(self, connection: InternalConnection) -> None:
        self.connection = connection
        self.task: asyncio.Task[None] | None = None
        """Runs the session, once the reader has sent ``resume``."""
        self._writable = asyncio.Event()

    @property
    def paused(self) -> bool:
        """The transport accepts no more data."""
        return self.connection.paused

    def send(self, message: feed.Control) -> None:
        """Write a control message: short, and not subject to flow control."""
        self.connection.send_text(feed.encode(message))

    async def wait_writable(self) -> None:
        """Wait until the transport accepts data."""
        while self.connection.paused:
            self._writable.clear()
            await self._writable.wait()

    def on_resume(self) -> None:
        """Wake the writers: the transport accepts data again."""
        self._writable.set()

    def end(self) -> None:
        """Cancel the session: the reader is gone or replaced."""
        # Only once: a second cancellation would interrupt the closing of its consumer.
        if self.task is not None and not self.task.cancelling():
            self.task.cancel()
