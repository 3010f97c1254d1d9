"""The catalogue in parts, each built at most once a second, regardless of requests and changes.

Readers with rights to some endpoints have separate parts, which list only those at no cost for the others.
"""

import asyncio
import gzip
import math
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import orjson

from diem.process.clock import Clock
from diem.protocol.endpoints import CANARY
from diem.protocol.update import iso
from services.data.access.rights import ReadRights
from services.data.kinds import kind_of, labels_of
from services.data.store import EndpointHead
from services.data.store.store import Store

MAX_ENTRIES: Final = 5_000
"""Maximum and default number of entries of a part (about 1.1 MB, a tenth compressed)."""
MAX_AGE_S: Final = 1.0
MAX_PARTS: Final = 16
"""Maximum number of cached parts for readers of everything; the least recently used is evicted."""
MAX_NARROW_PARTS: Final = 256
MAX_NARROW_BYTES: Final = 16 * 1024 * 1024
"""Maximum number of cached parts for all others, and of their uncompressed bytes."""
ENTRIES_PER_REQUEST: Final = 500
"""Number of entries whose building costs the reader one more request."""
_ENTRIES_PER_STEP: Final = 250
"""Entries built in one step of the event loop, about a millisecond."""
_MIN_COMPRESSED: Final = 1024


class CataloguePage(NamedTuple):
    """A requested part."""

    gone: bool = False
    """True to list deleted endpoints, too."""
    after: str = ""
    """Name after which the part begins."""
    limit: int = MAX_ENTRIES
    rights: ReadRights | None = None
    """The listed endpoints; None: all."""


class Part:
    """One part, ready to send."""

    __slots__ = ("_compressed", "body", "entries", "etag", "made_at", "revision")

    def __init__(self, revision: int, made_at: float, body: bytes, entries: int) -> None:
        self.revision = revision
        self.made_at = made_at
        self.body = body
        self.entries = entries
        self.etag = blake2b(body, digest_size=12).hexdigest()
        self._compressed: bytes | None = None

    async def compressed(self) -> bytes:
        """Return the gzipped body, compressed once, in a thread; empty for bodies too small to gain."""
        if self._compressed is None:
            if len(self.body) < _MIN_COMPRESSED:
                self._compressed = b""
            else:
                self._compressed = await asyncio.to_thread(gzip.compress, self.body, 6, mtime=0)
        return self._compressed


class _PartCache:
    """Cached parts, at most ``max_parts`` and ``max_bytes``, built one at a time."""

    def __init__(self, max_parts: int, max_bytes: float = math.inf) -> None:
        self._max_parts = max_parts
        self._max_bytes = max_bytes
        self._parts: OrderedDict[CataloguePage, Part] = OrderedDict()
        self._bytes = 0
        self.making = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._parts)

    def get(self, wanted: CataloguePage) -> Part | None:
        """Return a part, however old."""
        found = self._parts.get(wanted)
        if found is not None:
            self._parts.move_to_end(wanted)
        return found

    def put(self, wanted: CataloguePage, part: Part) -> None:
        """Replace a part, and evict the least recently used beyond the bounds."""
        before = self._parts.pop(wanted, None)
        self._bytes += len(part.body) - (0 if before is None else len(before.body))
        self._parts[wanted] = part
        while len(self._parts) > self._max_parts or (self._bytes > self._max_bytes and len(self._parts) > 1):
            _, oldest = self._parts.popitem(last=False)
            self._bytes -= len(oldest.body)


class Catalogue:
    """Builds and caches parts, up to a second old unless a fresh one is requested."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        # Separate, so that readers with many different rights neither evict nor delay the parts of others.
        self._whole = _PartCache(MAX_PARTS)
        self._narrow = _PartCache(MAX_NARROW_PARTS, MAX_NARROW_BYTES)

    async def part(self, wanted: CataloguePage, *, fresh: bool = False, compressed: bool = False) -> tuple[Part, int]:
        """Return a part, and the number of entries built for this request.

        Args:
            wanted: the requested part.
            fresh: include everything committed.
            compressed: gzip the part before returning it.
        """
        made = 0
        cache = self._whole if wanted.rights is None else self._narrow
        found = self._current(cache.get(wanted), fresh=fresh)
        if found is None or (compressed and found._compressed is None):  # noqa: SLF001
            async with cache.making:
                # The previous request may have built it meanwhile.
                found = self._current(cache.get(wanted), fresh=fresh)
                if found is None:
                    found = await self._make(wanted)
                    cache.put(wanted, found)
                    made = found.entries
                if compressed:
                    await found.compressed()
        return found, made

    def _current(self, found: Part | None, *, fresh: bool) -> Part | None:
        """Return a cached part if it is recent enough."""
        if found is None or found.revision == self._store.index.revision:
            return found
        return found if not fresh and self._clock.monotonic() - found.made_at < MAX_AGE_S else None

    async def _make(self, wanted: CataloguePage) -> Part:
        revision, made_at, names = self._store.index.revision, self._clock.monotonic(), self._store.index.names
        pieces: list[bytes] = []
        entries, more, last = 0, False, ""
        for step in _steps(names, _spans(wanted, names)):
            heads = self._listed(step, gone=wanted.gone)
            room = wanted.limit - entries
            more, heads = len(heads) > room, heads[:room]
            if heads:
                pieces.append(orjson.dumps([_entry(head) for head in heads])[1:-1])
                entries, last = entries + len(heads), heads[-1].endpoint
            if more:
                break
            await asyncio.sleep(0)
        after = b',"next":' + orjson.dumps(last) if more else b""
        body = b'{"endpoints":[' + b",".join(pieces) + b"]" + after + b"}"
        return Part(revision, made_at, body, entries)

    def _listed(self, names: Sequence[str], *, gone: bool) -> list[EndpointHead]:
        heads_of = self._store.index.heads
        heads = [head for name in names if not name.startswith(CANARY) and (head := heads_of.get(name)) is not None]
        return heads if gone else [head for head in heads if not head.gone]


def _spans(wanted: CataloguePage, names: Sequence[str]) -> Iterator[range]:
    """Yield the positions of the reader's names after the part's beginning."""
    first = bisect_right(names, wanted.after)
    spans = [range(len(names))] if wanted.rights is None else wanted.rights.spans(names)
    return (range(max(first, span.start), span.stop) for span in spans if span.stop > first)


def _steps(names: Sequence[str], spans: Iterable[range]) -> Iterator[list[str]]:
    """Yield the names at some positions, in lists of one to two times :data:`_ENTRIES_PER_STEP`, the last shorter."""
    step: list[str] = []
    for span in spans:
        for at in range(span.start, span.stop, _ENTRIES_PER_STEP):
            step += names[at : min(at + _ENTRIES_PER_STEP, span.stop)]
            if len(step) >= _ENTRIES_PER_STEP:
                yield step
                step = []
    if step:
        yield step


def _entry(head: EndpointHead) -> dict[str, Any]:
    return {
        "endpoint": head.endpoint,
        "kind": kind_of(head.media_type).name,
        "media_type": head.media_type,
        "title": head.title,
        **labels_of(head.labels),
        "version": head.version,
        "time": iso(head.changed_ms),
        "source": head.source,
        "gone": head.gone,
    }
