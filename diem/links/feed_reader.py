"""Reads a feed (docs/internals.md section 2): one link at a time, resumed at the reader's own positions."""

from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Final, Protocol

from diem.errors import DiemError
from diem.links.dialer import LinkConnection, Reconnector
from diem.process.auth import SharedKey
from diem.process.key_ring import KeyRing, KeyRole
from diem.process.tls import LinkTls
from diem.protocol import feed
from diem.protocol.codes import Close

REPLACED_DELAY_S: Final = 30.0
"""Seconds before a reader superseded by another (close code 4500) reconnects."""


class FeedSink(Protocol):
    """Receives the messages of a feed. All methods are called on the event loop and must not block."""

    def resume(self) -> feed.Resume:
        """Return the positions at which to continue; called when a link was opened."""
        ...

    def hello(self, message: feed.Hello) -> None:
        """Apply the source and the full set of streams."""
        ...

    def batch(self, *batches: feed.Batch) -> None:
        """Apply the updates of batches that arrived together, each of one stream."""
        ...

    def caught_up(self, name: str) -> None:
        """Called once a stream's content at the opening of the link has been sent."""
        ...

    def resync(self, message: feed.Resync) -> None:
        """Called for keys with malformed records: subscribers must fetch these endpoints."""
        ...

    def owners(self, message: feed.Owners) -> None:
        """Apply the owner of each stream divided among a group's servers."""
        ...

    def traced(self, message: feed.Traced) -> None:
        """Keep the context of an update that follows; called only if ``resume`` requested it."""
        ...

    def heartbeat(self) -> None:
        """Called while the source behind the feed is alive."""
        ...


class FeedLink(LinkConnection):
    """One link to a feed."""

    __slots__ = ("_batches", "_sink")

    def __init__(self, url: str, authorization: str, sink: FeedSink) -> None:
        super().__init__(url, authorization)
        self._sink = sink
        self._batches: list[feed.Batch] = []
        """Batches since the last control message or the start of :meth:`data_received`."""

    @property
    def superseded(self) -> bool:
        """True if the feed closed the link with 4500: it serves another reader now."""
        return self.close_code == Close.BAD_REQUEST and bool(self.protocol.close_rcvd_then_sent)

    def on_text(self, data: bytes) -> None:
        """Pass on a control message, after the batches before it."""
        self._pass_on()
        if not self.is_open:
            # Frames after a refused one in the same packet must not advance the position past it.
            return
        try:
            match feed.decode(data):
                case feed.Heartbeat():
                    self._sink.heartbeat()
                case feed.CaughtUp(name):
                    self._sink.caught_up(name)
                case feed.Hello() as message:
                    self._sink.hello(message)
                case feed.Resync() as message:
                    self._sink.resync(message)
                case feed.Owners() as message:
                    self._sink.owners(message)
                case feed.Traced() as message:
                    self._sink.traced(message)
                case feed.Resume() | feed.Leave():
                    self.close(Close.BAD_REQUEST, "that is the reader's")
        except DiemError as error:
            self.close(Close.BAD_REQUEST, str(error)[:100])

    def on_binary(self, data: bytes) -> None:
        """Keep a batch until those that arrived with it are decoded, too."""
        if not self.is_open:
            return
        try:
            self._batches.append(feed.decode_batch(data))
        except DiemError as error:
            self._refuse(error)

    def data_received(self, data: bytes) -> None:
        """Pass on the batches of one read together: the sink writes to each client once, not once for each stream."""
        began = monotonic()
        super().data_received(data)
        self._pass_on()
        self.yield_after(began)

    def _pass_on(self) -> None:
        if self._batches:
            batches, self._batches = self._batches, []
            try:
                self._sink.batch(*batches)
            except DiemError as error:
                self._refuse(error)

    def _refuse(self, error: DiemError) -> None:
        # The position has not moved: the next link begins with the refused batch.
        self._pass_on()
        self.close(Close.BAD_REQUEST, str(error)[:100])


class FeedReader(Reconnector[FeedLink]):
    """Keeps one link to the feed at ``url`` and passes its messages to ``sink``.

    ``others`` are further URLs of the same feed, as at a stand-by: all are tried in turn.
    """

    def __init__(
        self,
        url: str,
        key: KeyRing | SharedKey,
        sink: FeedSink,
        *,
        others: Sequence[str] = (),
        sockets: Path | None = None,
        tls: LinkTls | None = None,
    ) -> None:
        super().__init__("feed", [url, *others], key, KeyRole.FEED, logger="feed", sockets=sockets, tls=tls)
        self._sink = sink
        self._link: FeedLink | None = None

    def leave(self) -> bool:
        """Make the bridge leave its group but keep serving this link; return whether there is a link."""
        if self._link is None:
            return False
        self._link.send_text(feed.encode(feed.Leave()))
        return True

    def _connection(self, url: str, authorization: str) -> FeedLink:
        return FeedLink(url, authorization, self._sink)

    def _on_open(self, link: FeedLink, url: str) -> None:  # noqa: ARG002 - all have the same streams
        self._link = link
        link.send_text(feed.encode(self._sink.resume()))

    def _on_lost(self, link: FeedLink, url: str) -> float:
        self._link = None
        self._log.warning("feed link lost", url=url, code=link.close_code)
        return REPLACED_DELAY_S if link.superseded else 0.0
