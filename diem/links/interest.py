"""Reports the watched endpoints of a server to the Data Service (docs/internals.md section 2.4)."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from diem.links.dialer import LinkConnection, Reconnector
from diem.process.auth import SharedKey
from diem.process.key_ring import KeyRing, KeyRole
from diem.process.tls import LinkTls
from diem.protocol import interest
from diem.protocol.codes import Close

if TYPE_CHECKING:
    from diem.fanout.fanout import Registry

REPORT_AFTER_S: Final = 0.1
"""Seconds in which changes are collected: short for the first watcher, long enough for many to share a message."""
MAX_UNSENT_BYTES: Final = 1 << 20
"""Unsent bytes of a link above which changes stay collected."""
UNUSED_RETRY_S: Final = 30.0
"""Seconds before a Data Service without such sources is dialled again: it may have been configured."""


class InterestLink(LinkConnection):
    """One link to the Data Service."""

    __slots__ = ("_reporter",)

    def __init__(self, url: str, authorization: str, reporter: "InterestReporter") -> None:
        super().__init__(url, authorization, subprotocol=interest.SUBPROTOCOL)
        self._reporter = reporter

    def on_text(self, data: bytes) -> None:
        """Pass on the prefixes."""
        try:
            message = interest.decode(data)
        except interest.InterestError as error:
            self.close(Close.BAD_REQUEST, str(error)[:100])
            return
        if isinstance(message, interest.WatchedPrefixes) and self.is_open:
            self._reporter.report_all(self, message.prefixes)


class InterestReporter(Reconnector[InterestLink]):
    """Keeps a link to the Data Service, and reports which endpoints of a registry have subscribers.

    The names are bounded by the subscriptions of the server. A link is given up where no source polls by interest.

    Args:
        registry: whose ``on_change`` is set while there are prefixes.
        urls: of the Data Service and its stand-bys.
    """

    def __init__(
        self,
        registry: "Registry[Any]",
        urls: Sequence[str],
        keys: KeyRing | SharedKey,
        *,
        sockets: Path | None = None,
        tls: LinkTls | None = None,
    ) -> None:
        super().__init__("interest", urls, keys, KeyRole.FEED, logger="interest", sockets=sockets, tls=tls)
        self._registry = registry
        self._link: InterestLink | None = None
        self._below: tuple[bytes, ...] = ()
        self._changed: set[bytes] = set()
        self._sent: set[bytes] = set()
        """Endpoints that the Data Service counts as watched here."""
        self._again = False
        """Everything is sent again."""
        self._timer: asyncio.TimerHandle | None = None

    def _connection(self, url: str, authorization: str) -> InterestLink:
        return InterestLink(url, authorization, self)

    def _on_open(self, link: InterestLink, url: str) -> None:
        """Wait for the prefixes, which the Data Service sends first."""

    def report_all(self, link: InterestLink, prefixes: Sequence[str]) -> None:
        """Report all watched endpoints below the prefixes, and changes from now on."""
        self._below = tuple(f"{prefix}/".encode() for prefix in prefixes)
        if not self._below:
            link.close(Close.NORMAL, "no source polls by interest")
            return
        self._link, self._again = link, True
        self._registry.on_change = self._on_change
        self._changed.update(self._sent, filter(self._matters, self._registry))
        self._send()

    def _matters(self, endpoint: bytes) -> bool:
        return endpoint.startswith(self._below)

    def _on_change(self, endpoint: bytes) -> None:
        if self._matters(endpoint):
            self._changed.add(endpoint)
            self._send_later()

    def _send_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(REPORT_AFTER_S, self._send)

    def _send(self) -> None:
        self._cancel_timer()
        link = self._link
        if link is None or not link.is_open:
            return
        if link.unsent() > MAX_UNSENT_BYTES:
            self._send_later()
            return
        changed, self._changed = self._changed, set()
        watched = {*self._registry.subscribed(changed)}
        added, removed = watched if self._again else watched - self._sent, (changed - watched) & self._sent
        self._again = False
        self._sent |= added
        self._sent -= removed
        for message in interest.watched_messages(map(bytes.decode, added), map(bytes.decode, removed)):
            link.send_text(message)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_lost(self, link: InterestLink, url: str) -> float:
        self._link = self._registry.on_change = None
        self._changed.clear()
        self._sent.clear()
        self._cancel_timer()
        if self._below or link.close_code != Close.NORMAL:
            self._log.warning("interest link lost", url=url, code=link.close_code)
            return 0.0
        return UNUSED_RETRY_S
