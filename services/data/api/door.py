"""The door of writes, shared by single ones and streams: what may be written where, and how a body becomes a write."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from starlette.types import Scope

from diem.links.rest import client_address
from diem.process import security_log
from diem.process.security_log import SecurityEvent
from diem.protocol import endpoints
from services.data import kinds
from services.data.access.write_access import WriteRights
from services.data.errors import KeptByStore, OwnedBySource
from services.data.kinds import NOTICE, Body, Representation
from services.data.kinds.prefixes import Prefix, Prefixes
from services.data.large import LARGE_BYTES, run_sized
from services.data.limits import DATASET_BYTES
from services.data.store import Accepted, Patch
from services.data.store.store import Store

OwnerOf = Callable[[str], str | None]
"""Returns the name of the source that claims an endpoint; None if there is none."""
T = TypeVar("T")


class WriteDoor:
    """Checks writes. A source's endpoints are read-only: two writers would overwrite each other.

    Args:
        store: of the data.
        owner_of: the sources' claims.
        prefixes: rules by prefix.
        max_bytes: largest content of an endpoint.
    """

    def __init__(
        self, store: Store, owner_of: OwnerOf, prefixes: Prefixes | None = None, max_bytes: int = DATASET_BYTES
    ) -> None:
        self.max_bytes = max_bytes
        self._heads = store.index.heads
        self._owner_of = owner_of
        self._prefixes = prefixes or Prefixes()
        self._turn = asyncio.Semaphore(1)

    async def parse(self, work: Callable[[], T], size: int) -> T:
        """Parse a body of ``size`` bytes: in a thread if that takes milliseconds.

        One at a time: steps of the parser block other threads, those of several together for as long as all take.
        """
        if size <= LARGE_BYTES:
            return work()
        async with self._turn:
            return await run_sized(work, size)

    def enter(self, endpoint: str, writer: WriteRights) -> Prefix:
        """Count a write to an endpoint, and return the rules of its prefix.

        Raises:
            BadName: it would be a new endpoint with ``*``.
            KeptByStore, OwnedBySource: nobody writes this endpoint.
            WriteRefused: the writer may not write it, or not now.
        """
        if endpoints.is_collection(endpoint):
            raise KeptByStore(endpoint)
        if "*" in endpoint and endpoint not in self._heads:
            endpoints.check_written(endpoint)
        writer.begin(endpoint)
        self.refuse_owned(endpoint)
        return self._prefixes.of(endpoint)

    def refuse_owned(self, endpoint: str) -> None:
        """Raise OwnedBySource for an endpoint of a source."""
        owner = self._owner_of(endpoint)
        if owner is not None:
            raise OwnedBySource(endpoint, owner)

    def content(self, endpoint: str, rules: Prefix, body: Body, ttl_ms: int = 0) -> Representation:
        """Return the content of a body as it is stored; raises DataError. ``ttl_ms``: 0 means that of the prefix."""
        head = self._heads.get(endpoint)
        labels = head.labels if head is not None and not head.gone else kinds.NO_LABELS
        made = kinds.kind_of(body.media_type).parse(endpoint, body._replace(labels=labels))
        self.check(made, rules)
        return made.expiring(ttl_ms or rules.ttl_ms)

    def document(self, endpoint: str, rules: Prefix, body: Body, ttl_ms: int = 0) -> Representation:
        """Return the content of JSON that is in canonical form; otherwise as :meth:`content`."""
        made = kinds.seal(endpoint, body.media_type, body.content, body.title)
        self.check(made, rules)
        return made.expiring(ttl_ms or rules.ttl_ms)

    def check(self, made: Representation, rules: Prefix) -> None:
        """Check size, kind and schema of content; raises DataError."""
        made.check_size(self.max_bytes)
        rules.check(made)

    def bulk(self, made: list[Representation]) -> list[Representation]:
        """Check several contents; return them with the times to live of their prefixes. Raises DataError."""
        found = []
        for each in made:
            rules = self._prefixes.of(each.endpoint)
            self.check(each, rules)
            found.append(each.expiring(rules.ttl_ms))
        return found

    def notice(self, endpoint: str, rules: Prefix, fields: Mapping[str, str], ttl_ms: int = 0) -> Representation:
        """Return the notice of a change of data that lives elsewhere; raises DataError."""
        body = Body(b"", NOTICE, {**fields, "url": rules.url_of(endpoint)})
        made = kinds.kind_of(NOTICE).parse(endpoint, body)
        rules.check(made)
        return made.expiring(ttl_ms or rules.ttl_ms)

    def patch(self, endpoint: str, rules: Prefix, body: Body, ttl_ms: int = 0) -> Patch:
        """Return a patch, which is checked when it is applied."""
        return Patch(endpoint, body, self.max_bytes, ttl_ms, rules.check_content)


def record_writes(scope: Scope, writer: WriteRights, changes: int) -> None:
    """Record the writes of a request in the security log."""
    address = client_address(scope)
    security_log.record(SecurityEvent.WRITES, address=address, key_name=writer.name, changes=changes)


def answer_of(accepted: Accepted) -> dict[str, Any]:
    """Return the answer for one endpoint."""
    return {"endpoint": accepted.endpoint, "version": accepted.version, "changed": accepted.changed}
