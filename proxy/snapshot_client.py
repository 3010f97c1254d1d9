"""Client of the metadata services: receives the current snapshot and its changes from one of them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from diem.links.dialer import LinkConnection, Reconnector
from diem.process.auth import SharedKey
from diem.process.key_ring import KeyRing, KeyRole
from diem.process.tls import LinkTls
from diem.protocol.assignment import BadSnapshot, Snapshot, decode
from diem.protocol.codes import Close

SUBPROTOCOL: Final = "diem.watch.v1"
MAX_SNAPSHOT_BYTES: Final = 64 << 20
"""Twice the size of a map with 100,000 entries and names of maximum length."""

ApplySnapshot = Callable[[Snapshot], bool]
"""Applies a snapshot; returns False if it is too old, so that the next service is tried."""


class WatchLink(LinkConnection):
    """One link to a metadata service."""

    __slots__ = ("_apply", "served")

    def __init__(self, url: str, authorization: str, apply: ApplySnapshot) -> None:
        super().__init__(url, authorization, subprotocol=SUBPROTOCOL, max_size=MAX_SNAPSHOT_BYTES)
        self._apply = apply
        self.served = False
        """Whether one of its snapshots was applied."""

    def on_text(self, data: bytes) -> None:
        """Apply a snapshot."""
        if not self.is_open:
            return
        try:
            snapshot = decode(data)
        except BadSnapshot as error:
            self.close(Close.BAD_REQUEST, str(error)[:100])
            return
        if self._apply(snapshot):
            self.served = True
        else:
            # Another service, or this one at the next attempt, may have a newer map.
            self.close(Close.NORMAL, "behind")


class SnapshotClient(Reconnector[WatchLink]):
    """Keeps one link to one of the metadata services ``urls``; the last snapshot stays in force without one."""

    def __init__(
        self,
        urls: Sequence[str],
        key: KeyRing | SharedKey,
        apply: ApplySnapshot,
        *,
        sockets: Path | None = None,
        tls: LinkTls | None = None,
    ) -> None:
        super().__init__("metadata service", urls, key, KeyRole.METADATA, logger="proxy", sockets=sockets, tls=tls)
        self._apply = apply

    def _connection(self, url: str, authorization: str) -> WatchLink:
        return WatchLink(url, authorization, self._apply)

    def _on_open(self, link: WatchLink, url: str) -> None:
        """Do nothing: the service sends its snapshot unrequested."""

    def _on_lost(self, link: WatchLink, url: str) -> float:
        if link.served:
            self._backoff.reset()
            self._log.warning("metadata service lost: routing continues with the last snapshot", url=url)
        return 0.0
