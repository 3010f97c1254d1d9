"""Plans the effects of a group of writes: versions, sequences, answers and refusals. Pure."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import orjson

from diem.protocol.endpoints import ancestors, coverage
from diem.protocol.update import GONE, GREATEST_VERSION, UPDATE, next_version
from services.data.datasets import Dataset
from services.data.errors import (
    DataError,
    EndpointDeleted,
    IdempotencyKeyReused,
    TooManyEndpoints,
    UnknownEndpoint,
    VersionsUsedUp,
    WrongClock,
    WrongUnit,
)
from services.data.limits import DAY_MS
from services.data.store.index import EndpointHead

EARLIEST_MS: Final = 1_577_836_800_000
LATEST_MS: Final = 4_102_444_800_000
"""Start of the years 2020 and 2100, between which a clock is trusted: its versions are permanent."""
LAST_VERSION: Final = GREATEST_VERSION - 1_000
"""Version from which an endpoint cannot change; the rest is for writes with repeated endpoints."""
_DELETED: Final = "deleted ones included until they are forgotten"


def check_time(now_ms: int) -> None:
    """Raise WrongClock for an implausible time."""
    if not EARLIEST_MS <= now_ms < LATEST_MS:
        year = 1970 + int(now_ms / (365.2425 * DAY_MS))
        raise WrongClock(f"the clock of this machine is wrong (it is in the year {year}): correct it")


class Accepted(NamedTuple):
    """The answer for one endpoint: its version now, and whether this write changed it."""

    endpoint: str
    version: int
    changed: bool


class IdempotencyKey(NamedTuple):
    """A client's name for a request, and a digest of the whole request."""

    key: str
    digest: bytes
    writer: str = ""
    """Id of the owning write key; empty: the key file's."""

    @property
    def owned(self) -> tuple[str, str]:
        """The name with its owner."""
        return self.key, self.writer


class EndpointBound(NamedTuple):
    """Limit of endpoints below a write key's prefixes for creating another one.

    ``prefixes``: whole segments; empty: all endpoints. Deleted endpoints count until they are forgotten.
    """

    prefixes: tuple[str, ...]
    most: int

    def count(self, names: Sequence[str]) -> int:
        """Return the number of endpoints below the prefixes among the sorted ``names``."""
        if not self.prefixes:
            return len(names)
        apart = [prefix for prefix in self.prefixes if not any(up in self.prefixes for up in ancestors(prefix))]
        total = 0
        for prefix in dict.fromkeys(apart):
            # Names below a prefix sort from "/" on; "0" is the next character.
            first, end = (bisect_left(names, prefix + character) for character in "/0")
            at = bisect_left(names, prefix)
            total += end - first + (at < len(names) and names[at] == prefix)
        return total

    def covers(self, name: str) -> bool:
        """Return whether an endpoint is below the prefixes."""
        return not self.prefixes or coverage(self.prefixes)(name)


@dataclass(frozen=True, slots=True)
class Write:
    """One atomic request: datasets to store, or an endpoint to delete."""

    datasets: Sequence[Dataset] = ()
    delete: str = ""
    source: str = ""
    key: IdempotencyKey | None = None
    bound: EndpointBound | None = None
    """Bound of the write key; None: only the store's."""

    @property
    def endpoints(self) -> list[str]:
        """The affected endpoints."""
        return [self.delete] if self.delete else [dataset.endpoint for dataset in self.datasets]


class IdempotentReply(NamedTuple):
    """Digest and answer of an answered request."""

    digest: bytes
    answer: bytes


@dataclass(slots=True)
class WritePlan:
    """Rows to write, and the answers once they are committed."""

    sequence: int
    began: int
    """The counter before the group."""
    outcomes: list[list[Accepted] | DataError] = field(default_factory=list)
    heads: dict[str, EndpointHead] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)
    requests: dict[tuple[str, str], IdempotentReply] = field(default_factory=dict)
    """Replies by name and writer."""
    replaced: list[str] = field(default_factory=list)
    """Endpoints whose stored version moves into the history."""
    superseded: list[tuple[EndpointHead, bytes]] = field(default_factory=list)
    """Versions accepted and replaced within the group, with contents, written directly to the history."""
    unchanged: int = 0
    missed: list[EndpointHead] = field(default_factory=list)
    """Heads of an earlier commit with a lost answer."""
    pruned: list[str] = field(default_factory=list)
    """Endpoints whose oldest versions are deleted in the same transaction."""
    forgotten: int = 0
    """The sequence up to which deleted endpoints are forgotten."""


@dataclass(frozen=True, slots=True)
class Basis:
    """The part of the store's state that a plan depends on."""

    heads: Mapping[str, EndpointHead]
    """Heads of the affected endpoints."""
    replies: Mapping[tuple[str, str], IdempotentReply]
    """Replies to earlier requests with the writes' idempotency keys, by name and writer."""
    sequence: int
    """The counter."""
    count: int
    """Number of endpoints in the store, including deleted ones not yet forgotten."""
    max_endpoints: int
    now_ms: int
    """The time of acceptance."""
    floor: int = 0
    """Versions of endpoints not in the store begin above this."""
    names: Sequence[str] = ()
    """All endpoints in the store, sorted."""


def plan(writes: Sequence[Write], basis: Basis) -> WritePlan:
    """Plan writes in order, independently: a refused one does not affect the others."""
    result = WritePlan(basis.sequence, basis.sequence)
    for write in writes:
        try:
            result.outcomes.append(_answer(result, write, basis))
        except DataError as refusal:
            result.outcomes.append(refusal)
    return result


def _answer(so_far: WritePlan, write: Write, basis: Basis) -> list[Accepted]:
    if write.key is not None:
        known = so_far.requests.get(write.key.owned) or basis.replies.get(write.key.owned)
        if known is not None:
            if known.digest != write.key.digest:
                raise IdempotencyKeyReused(f"the Idempotency-Key {write.key.key[:40]!r} was used for another request")
            return [Accepted(*item) for item in orjson.loads(known.answer)]
    current = {endpoint: so_far.heads.get(endpoint) or basis.heads.get(endpoint) for endpoint in write.endpoints}
    for endpoint, head in current.items():
        if (basis.floor if head is None else head.version) >= LAST_VERSION:
            raise VersionsUsedUp(endpoint)
    if write.delete:
        accepted = [_delete(so_far, write, current[write.delete], basis.now_ms)]
    else:
        _check(write, current)
        if new := sum(head is None for head in current.values()):
            _check_room(so_far, write, basis, new)
        accepted = [_put(so_far, write, dataset, basis) for dataset in write.datasets]
    if write.key is not None:
        so_far.requests[write.key.owned] = IdempotentReply(write.key.digest, orjson.dumps([[*one] for one in accepted]))
    return accepted


def _check_room(so_far: WritePlan, write: Write, basis: Basis, new: int) -> None:
    added = [endpoint for endpoint in so_far.heads if endpoint not in basis.heads]
    if basis.count + len(added) + new > basis.max_endpoints:
        raise TooManyEndpoints(f"the store may hold {basis.max_endpoints} endpoints, {_DELETED}")
    bound = write.bound
    if bound is not None and bound.count(basis.names) + sum(map(bound.covers, added)) + new > bound.most:
        below = f" below {' '.join(bound.prefixes)}" if bound.prefixes else ""
        raise TooManyEndpoints(
            f"this write key may make endpoints while there are fewer than {bound.most}{below}, {_DELETED}: "
            "a key made with a greater --endpoints may make more"
        )


def _check(write: Write, current: Mapping[str, EndpointHead | None]) -> None:
    for dataset in write.datasets:
        head = current[dataset.endpoint]
        if head is None or head.gone:
            continue
        if head.unit != dataset.unit:
            raise WrongUnit(f"wrong unit {dataset.unit}: it has {head.unit}", dataset.endpoint)
        if head.resolution != dataset.resolution:
            raise WrongUnit(f"wrong resolution {dataset.resolution}: it has {head.resolution}", dataset.endpoint)


def _put(so_far: WritePlan, write: Write, dataset: Dataset, basis: Basis) -> Accepted:
    endpoint, now_ms = dataset.endpoint, basis.now_ms
    # The current head: one write of a source may contain an endpoint twice.
    head = so_far.heads.get(endpoint) or basis.heads.get(endpoint)
    title, area, quantity = described = _described(dataset, head)
    if head is not None and not head.gone and head.digest == dataset.digest:
        so_far.unchanged += 1
        if described != (head.title, head.area, head.quantity):
            so_far.heads[endpoint] = head._replace(title=title, area=area, quantity=quantity)
            so_far.contents[endpoint] = dataset.content
        return Accepted(endpoint, head.version, changed=False)
    _archive(so_far, head)
    so_far.sequence += 1
    version = next_version(head.version if head else basis.floor, now_ms)
    so_far.heads[endpoint] = EndpointHead(
        endpoint,
        so_far.sequence,
        version,
        UPDATE,
        now_ms,
        dataset.unit,
        dataset.resolution,
        title,
        write.source,
        dataset.digest,
        area,
        quantity,
    )
    so_far.contents[endpoint] = dataset.content
    return Accepted(endpoint, version, changed=True)


def _delete(so_far: WritePlan, write: Write, head: EndpointHead | None, now_ms: int) -> Accepted:
    if head is None:
        raise UnknownEndpoint(write.delete)
    if head.gone:
        raise EndpointDeleted(write.delete, head.version)
    _archive(so_far, head)
    so_far.sequence += 1
    version = next_version(head.version, now_ms)
    so_far.heads[write.delete] = head._replace(
        sequence=so_far.sequence, version=version, kind=GONE, changed_ms=now_ms, source=write.source, digest=b""
    )
    so_far.contents[write.delete] = b""
    return Accepted(write.delete, version, changed=True)


def _described(dataset: Dataset, head: EndpointHead | None) -> tuple[str, str, str]:
    """Return title, area and quantity; empty ones keep their stored values."""
    given = dataset.title, dataset.area, dataset.quantity
    known = (head.title, head.area, head.quantity) if head else ("", "", "")
    # PostgreSQL cannot store NUL characters in text.
    title, area, quantity = (new.replace("\0", "") or old for new, old in zip(given, known, strict=True))
    return title, area, quantity


def _archive(so_far: WritePlan, head: EndpointHead | None) -> None:
    """Move the version of ``head``, about to be replaced, into the history."""
    if head is None:
        return
    if head.sequence > so_far.began:
        so_far.superseded.append((head, so_far.contents[head.endpoint]))
    else:
        so_far.replaced.append(head.endpoint)
