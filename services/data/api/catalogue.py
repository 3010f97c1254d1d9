"""The catalogue in parts, each built at most once a second, however many requests and changes there are."""

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
"""Most entries of a part, and the default (about 1.1 MB, compressed a tenth)."""
MAX_AGE_S: Final = 1.0
MAX_PARTS: Final = 16
"""Most cached parts; the least recently used is evicted."""
ENTRIES_PER_REQUEST: Final = 500
"""Building so many entries costs the reader one more request."""
_ENTRIES_PER_STEP: Final = 250
"""Entries built in one step of the event loop, about a millisecond."""
_MIN_COMPRESSED: Final = 1024


class CataloguePage(NamedTuple):
    """A requested part."""

    gone: bool = False
    """Whether deleted endpoints are listed, too."""
    after: str = ""
    """The part begins after this name."""
    limit: int = MAX_ENTRIES


class Part:
    """One part, ready to be sent."""

    __slots__ = ("_compressed", "body", "entries", "etag", "made_at", "revision")

    def __init__(self, revision: int, made_at: float, body: bytes, entries: int) -> None:
        self.revision = revision
        self.made_at = made_at
        self.body = body
        self.entries = entries
        self.etag = blake2b(body, digest_size=12).hexdigest()
        self._compressed: bytes | None = None

    async def compressed(self) -> bytes:
        """Return the gzipped body, compressed once and in a thread; empty for bodies too small to gain."""
        if self._compressed is None:
            if len(self.body) < _MIN_COMPRESSED:
                self._compressed = b""
            else:
                self._compressed = await asyncio.to_thread(gzip.compress, self.body, 6, mtime=0)
        return self._compressed


class Catalogue:
    """Builds and caches parts, which may be a second old unless a fresh one is requested."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._parts: OrderedDict[CataloguePage, Part] = OrderedDict()
        self._making = asyncio.Lock()

    async def part(self, wanted: CataloguePage, *, fresh: bool = False, compressed: bool = False) -> tuple[Part, int]:
        """Return a part, and the number of entries built for this request.

        Args:
            wanted: the requested part.
            fresh: include everything committed.
            compressed: gzip the part before returning it.
        """
        made = 0
        found = self._cached(wanted, fresh=fresh)
        if found is None or (compressed and found._compressed is None):  # noqa: SLF001
            async with self._making:
                # The request before may have built it meanwhile.
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
            heads = self._listed(names[at : at + _ENTRIES_PER_STEP], gone=wanted.gone)
            at += _ENTRIES_PER_STEP
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
