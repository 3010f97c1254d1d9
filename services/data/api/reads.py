"""``GET /v1/data/{endpoint}``: the current version, or one named in the request (docs/protocol.md section 2)."""

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from diem.links.rest import problem
from diem.process.clock import Clock
from diem.protocol.update import iso
from services.data.api.cors import Cors
from services.data.api.rendered import Rendered, RenderedVersions, etag, format_of, render
from services.data.api.requests import PREFIX, endpoint_of, has_etag, wanted_version
from services.data.cache_control import IMMUTABLE, NO_CACHE, PRIVATE
from services.data.errors import EndpointDeleted, UnknownEndpoint, VersionNotKept
from services.data.kinds import CSV, OCTETS, Format, is_shown, kind_of
from services.data.kinds import DOCUMENT as JSON
from services.data.large import LARGE_BYTES, run_sized
from services.data.store import StoredVersion
from services.data.store.store import Store

if TYPE_CHECKING:
    # Its HTTP client is loaded only where a topic is served.
    from services.data.api.retained import RetainedReads


class Selected(NamedTuple):
    """The requested version and format."""

    endpoint: str
    version: int
    accept: str | None
    format: Format
    is_named: bool
    """True if the request names the version."""
    is_current: bool
    unchanged: bool
    """True if the reader has it."""


class Found(NamedTuple):
    """The answer to a read."""

    version: int
    format: Format
    rendered: Rendered | None
    """None: 304, the reader has it."""


class DataReads:
    """Selects versions and finds them in memory, for the resource and for its fast path.

    Args:
        store: of the data.
        clock: of the age of rendered versions.
        cors: the origins of pages that may read. public: readers anywhere need no key.
    """

    def __init__(self, store: Store, clock: Clock, cors: Cors, *, public: bool) -> None:
        self._store = store
        self._rendered = RenderedVersions()
        self._turn = asyncio.Semaphore(1)
        self._clock = clock
        self._cors = cors
        self._public = public

    def select(
        self, endpoint: str, wanted: int | None, accept: str | None, if_none_match: str | None
    ) -> Selected | None:
        """Return the requested version and format; None if neither format is acceptable.

        Args:
            endpoint: its name.
            wanted: the version named in the request; None: the current one.
            accept: the field of the request.
            if_none_match: the field of the request.

        Raises:
            UnknownEndpoint: there never was such an endpoint.
            EndpointDeleted: the version is the current one, a deletion.
            VersionNotKept: the version is newer than the current one.
        """
        head = self._store.index.heads.get(endpoint)
        if head is None:
            raise UnknownEndpoint(endpoint)
        version = wanted or head.version
        if version > head.version:
            raise VersionNotKept(endpoint, version)
        is_current = version == head.version
        if head.gone and is_current:
            raise EndpointDeleted(endpoint, head.version)
        format_ = format_of(accept, head.media_type)
        if format_ is None:
            return None
        unchanged = has_etag(if_none_match, etag(version, format_))
        return Selected(endpoint, version, accept, format_, wanted is not None, is_current, unchanged)

    def in_memory(self, selected: Selected) -> Found | None:
        """Return the answer if it needs no store access."""
        endpoint, version, format_ = selected.endpoint, selected.version, selected.format
        if selected.unchanged and selected.is_current:
            return Found(version, format_, None)
        now = self._clock.monotonic()
        rendered = self._rendered.get(endpoint, version, format_.suffix, current=selected.is_current, now=now)
        if rendered is None and selected.is_current:
            stored = self._store.reader.cached(endpoint)
            if stored is not None and stored.version == version and _size(stored, format_) <= LARGE_BYTES:
                rendered = self._rendered.put(endpoint, render(endpoint, stored, format_, now))
        if rendered is None:
            return None
        return Found(version, format_, None if selected.unchanged else rendered)

    async def find(self, selected: Selected) -> Found:
        """Return the answer; for an unnamed version, a newly committed one may take its place.

        Raises:
            VersionNotKept: this version is not retained.
            EndpointDeleted: this version is a deletion.
            StoreUnavailable: the database cannot be read.
        """
        found = self.in_memory(selected)
        if found is not None:
            return found
        endpoint, version = selected.endpoint, selected.version
        stored = await self._store.reader.current(endpoint) if selected.is_current else None
        if stored is None or (stored.version != version and selected.is_named):
            stored = await self._store.reader.version(endpoint, version)
        # An old version may be of another kind.
        format_ = format_of(selected.accept, stored.media_type) or kind_of(stored.media_type).formats[0]
        rendered = await self._render(endpoint, stored, format_)
        # The tag was compared with that of the current kind.
        unchanged = selected.unchanged and stored.version == version and format_.suffix == selected.format.suffix
        return Found(stored.version, format_, None if unchanged else rendered)

    async def _render(self, endpoint: str, stored: StoredVersion, format_: Format) -> Rendered:
        """Render a version: one at a time if that takes a thread, and once for all who wait for it."""
        if (size := _size(stored, format_)) <= LARGE_BYTES:
            return self._rendered.put(endpoint, render(endpoint, stored, format_, self._clock.monotonic()))
        async with self._turn:
            now = self._clock.monotonic()
            found = self._rendered.get(endpoint, stored.version, format_.suffix, current=False, now=now)
            if found is None:
                found = self._rendered.put(
                    endpoint, await run_sized(lambda: render(endpoint, stored, format_, now), size)
                )
            return found

    def caching(self, selected: Selected, target: bytes, origin: str | None, *, has_key: bool) -> str:
        """Return the value of Cache-Control.

        Shared caches keep only one spelling of each version's URL, checked against ``target``, and if answers depend on
        ``origin``, only those of pages that may read, lest a client fill them with invented ones.

        Args:
            selected: the version.
            target: path and query as sent.
            origin: field of the request.
            has_key: the request has an Authorization field.
        """
        if not selected.is_named:
            return NO_CACHE
        shared = self._public and not has_key and target == _target(selected) and self._may_share(origin)
        return IMMUTABLE if shared else PRIVATE

    def _may_share(self, origin: str | None) -> bool:
        return origin is None or not self._cors.depends_on_origin or self._cors.may_read(origin)


def _size(stored: StoredVersion, format_: Format) -> int:
    """Return the number of bytes that are rewritten for a format."""
    return len(stored.content) if format_.is_converted else 0


def _target(selected: Selected) -> bytes:
    return f"{PREFIX}{selected.endpoint}?version={selected.version}".encode()


def answer(found: Found, caching: str) -> Response:
    """Return the 200 or the 304; ``caching`` is the value of Cache-Control."""
    # Another key may have other rights, so the browser's cache must not answer.
    vary = "Accept, Authorization" if caching == PRIVATE else "Accept"
    headers = {"ETag": etag(found.version, found.format), "Vary": vary, "Cache-Control": caching}
    rendered = found.rendered
    if rendered is None:
        return Response(status_code=304, headers=headers)
    headers |= {"Content-Type": rendered.media_type, "Diem-Version": str(rendered.version)}
    headers["Diem-Time"] = iso(rendered.changed_ms)
    if found.format.suffix == OCTETS:
        # Content of others must not run as this origin's, in whatever browser.
        headers["Content-Security-Policy"] = "default-src 'none'; sandbox"
        if not is_shown(rendered.media_type):
            headers["Content-Disposition"] = "attachment"
    return Response(rendered.body, headers=headers)


class ReadApi:
    """Handler of the resource."""

    def __init__(self, reads: DataReads, retained: "RetainedReads | None" = None) -> None:
        self._reads = reads
        self._retained = retained

    async def read(self, request: Request) -> Response:
        """``GET /v1/data/{endpoint}``: the data in a format of its kind; a 304 is answered without reading the store.

        With ``?version=N``, that version while retained: caches may keep the answer.
        """
        given, endpoint, wanted = request.headers, endpoint_of(request), wanted_version(request)
        if self._retained is not None:
            return await self._read_retained(self._retained, endpoint, wanted, given.get("if-none-match"))
        selected = self._reads.select(endpoint, wanted, given.get("accept"), given.get("if-none-match"))
        if selected is None:
            return problem(406, "not_acceptable", f"a series is {JSON} or {CSV}", headers={"Vary": "Accept"})
        found = await self._reads.find(selected)
        target = request.scope["raw_path"] + b"?" + request.scope["query_string"]
        caching = self._reads.caching(selected, target, given.get("origin"), has_key="authorization" in given)
        return answer(found, caching)

    async def _read_retained(
        self, retained: "RetainedReads", endpoint: str, wanted: int | None, if_none_match: str | None
    ) -> Response:
        find = retained.current(endpoint) if wanted is None else retained.version(endpoint, wanted)
        stored = await find
        format_ = kind_of(stored.media_type).formats[0]
        unchanged = has_etag(if_none_match, etag(stored.version, format_))
        rendered = None if unchanged else render(endpoint, stored, format_, 0.0)
        return answer(Found(stored.version, format_, rendered), NO_CACHE if wanted is None else PRIVATE)
