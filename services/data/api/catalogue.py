"""The catalogue in parts: each is made at most once a second, however many ask and however much changes."""

import asyncio
import gzip
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import orjson

from diem.process.clock import Clock
from diem.protocol.update import iso
from services.data.store import EndpointHead, Store

MAX_ENTRIES: Final = 5_000
"""Of one part (about 1.1 MB, compressed a tenth); as many have a part that is asked for without a limit."""
MAX_AGE_S: Final = 1.0
MAX_PARTS: Final = 16
"""That are kept; the one that was asked for longest ago goes first."""
ENTRIES_A_REQUEST: Final = 500
"""So many entries that are made cost a reader one request more."""
_AT_ONCE: Final = 250
"""Entries that are made in one step of the event loop, about a millisecond."""
_MIN_COMPRESSED: Final = 1024


class CataloguePage(NamedTuple):
    """Which part is asked for."""

    gone: bool = False
    """Whether deleted endpoints are listed too."""
    after: str = ""
    """The part begins with the first name after this one."""
    limit: int = MAX_ENTRIES


class Part:
    """One part as it is sent."""

    __slots__ = ("_compressed", "body", "entries", "etag", "made_at", "revision")

    def __init__(self, revision: int, made_at: float, body: bytes, entries: int) -> None:
        self.revision = revision
        self.made_at = made_at
        self.body = body
        self.entries = entries
        self.etag = blake2b(body, digest_size=12).hexdigest()
        self._compressed: bytes | None = None

    async def compressed(self) -> bytes:
        """The body, gzipped once, in a thread; empty where that is not worth it."""
        if self._compressed is None:
            if len(self.body) < _MIN_COMPRESSED:
                self._compressed = b""
            else:
                self._compressed = await asyncio.to_thread(gzip.compress, self.body, 6, mtime=0)
        return self._compressed


class Catalogue:
    """Makes parts and keeps the last ones. A part may be a second old, but for who asks for a fresh one."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._parts: OrderedDict[CataloguePage, Part] = OrderedDict()
        self._making = asyncio.Lock()

    async def part(self, wanted: CataloguePage, *, fresh: bool = False, compressed: bool = False) -> tuple[Part, int]:
        """A part, and how many entries were made for it now.

        Args:
            wanted: which one.
            fresh: it has everything that is committed.
            compressed: it is gzipped when this returns.
        """
        made = 0
        found = self._cached(wanted, fresh=fresh)
        if found is None or (compressed and found._compressed is None):  # noqa: SLF001
            async with self._making:
                # Whoever waited finds what the one before has made.
                found = self._cached(wanted, fresh=fresh)
                if found is None:
                    found = await self._make(wanted)
                    made = found.entries
                if compressed:
                    await found.compressed()
        return found, made

    def _cached(self, wanted: CataloguePage, *, fresh: bool) -> Part | None:
        found = self._parts.get(wanted)
        if found is None:
            return None
        self._parts.move_to_end(wanted)
        if found.revision == self._store.index.revision:
            return found
        return found if not fresh and self._clock.monotonic() - found.made_at < MAX_AGE_S else None

    async def _make(self, wanted: CataloguePage) -> Part:
        revision, made_at, names = self._store.index.revision, self._clock.monotonic(), self._store.index.names
        pieces: list[bytes] = []
        entries, more, last = 0, False, ""
        at = bisect_right(names, wanted.after)
        while at < len(names) and not more:
            heads = self._listed(names[at : at + _AT_ONCE], gone=wanted.gone)
            at += _AT_ONCE
            room = wanted.limit - entries
            more, heads = len(heads) > room, heads[:room]
            if heads:
                pieces.append(orjson.dumps([_entry(head) for head in heads])[1:-1])
                entries, last = entries + len(heads), heads[-1].endpoint
            await asyncio.sleep(0)
        after = b',"next":' + orjson.dumps(last) if more else b""
        body = b'{"endpoints":[' + b",".join(pieces) + b"]" + after + b"}"
        self._parts[wanted] = made = Part(revision, made_at, body, entries)
        self._parts.move_to_end(wanted)
        if len(self._parts) > MAX_PARTS:
            self._parts.popitem(last=False)
        return made

    def _listed(self, names: Sequence[str], *, gone: bool) -> list[EndpointHead]:
        heads = [head for name in names if (head := self._store.index.heads.get(name)) is not None]
        return heads if gone else [head for head in heads if not head.gone]


def _entry(head: EndpointHead) -> dict[str, Any]:
    return {
        "endpoint": head.endpoint,
        "title": head.title,
        "area": head.area,
        "quantity": head.quantity,
        "unit": head.unit,
        "resolution": head.resolution,
        "version": head.version,
        "time": iso(head.changed_ms),
        "source": head.source,
        "gone": head.gone,
    }
