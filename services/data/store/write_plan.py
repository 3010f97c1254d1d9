"""Plans the effects of a group of writes: versions, sequences, answers and refusals. Pure."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple, TypeVar

import orjson

from diem.protocol.endpoints import ancestors, collection_of, coverage
from diem.protocol.update import GONE, GREATEST_VERSION, UPDATE, next_version
from services.data.errors import (
    ChangeRefused,
    CheckpointMoved,
    DataError,
    EndpointDeleted,
    IdempotencyKeyReused,
    PreconditionFailed,
    TooManyEndpoints,
    UnknownEndpoint,
    UnpatchableKind,
    VersionsUsedUp,
    WrongClock,
    WrongKind,
)
from services.data.kinds import COLLECTION, NO_LABELS, Body, Representation, kind_of, merge_labels
from services.data.limits import DAY_MS
from services.data.store import undo
from services.data.store.index import EndpointHead, membership

EARLIEST_MS: Final = 1_577_836_800_000
LATEST_MS: Final = 4_102_444_800_000
"""Start of the years 2020 and 2100, between which a clock is trusted: its versions are permanent."""
T = TypeVar("T")
LAST_VERSION: Final = GREATEST_VERSION - 1_000
"""Version from which an endpoint cannot change; the rest is for writes with repeated endpoints."""
COLLECTIONS_PER_ENDPOINT: Final = 2
"""Collections that there may be for each endpoint of a limit: a name of 256 bytes makes up to 126."""
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
class Patch:
    """A change of a part of an endpoint's content.

    Attributes:
        endpoint: its name. body: of the request. max_bytes: limit of the result. ttl_ms: time until the endpoint
        expires; 0: as before. check: raises DataError for a result that may not be stored. initial: what is stored if
        there is no endpoint; None: that is an error.
    """

    endpoint: str
    body: Body
    max_bytes: int
    ttl_ms: int = 0
    check: Callable[[str, bytes], None] = lambda _endpoint, _content: None
    initial: Representation | None = None

    @property
    def size(self) -> int:
        """Length of the body in bytes."""
        return len(self.body.content)


# Not frozen, as Representation.
@dataclass(slots=True)
class Deletion:
    """The end of an endpoint, as a change with a version of its own."""

    endpoint: str
    expired: bool = False
    """It is for its time to live: nothing happens if that was extended meanwhile."""
    missing_ok: bool = False
    """Without an endpoint nothing happens; otherwise that is an error."""
    size: ClassVar[int] = 0


Change = Representation | Patch | Deletion


class Checkpoint(NamedTuple):
    """Progress of a source through one part of its input, such as a partition, stored with the changes up to there."""

    part: str
    before: str | None
    """The stored position, with which the changes fit; None: there is none yet."""
    after: str
    """Empty: the part begins anew."""


@dataclass(frozen=True, slots=True)
class Precondition:
    """Condition of a write to one endpoint (RFC 9110 section 13.1): If-Match, or ``If-None-Match: *``.

    Attributes:
        versions: one of these is the current one; None: any. exists: False: there is no such endpoint.
    """

    versions: frozenset[int] | None = None
    exists: bool = True

    def check(self, endpoint: str, head: EndpointHead | None) -> None:
        """Raise PreconditionFailed if the condition does not hold."""
        version = 0 if head is None or head.gone else head.version
        if bool(version) != self.exists or (self.versions is not None and version not in self.versions):
            raise PreconditionFailed(endpoint, version)


# Not frozen: every write makes several, and a frozen one takes five times as long.
@dataclass(slots=True)
class Write:
    """One atomic request: changes in order, all or none."""

    changes: Sequence[Change]
    source: str = ""
    key: IdempotencyKey | None = None
    bound: EndpointBound | None = None
    """Bound of the write key; None: only the store's."""
    precondition: Precondition | None = None
    writer: str = ""
    """Id of the write key; empty: the key file's."""
    checkpoint: Checkpoint | None = None
    """Of the source."""
    traceparent: str | None = None
    """The caller's context, where writes are traced."""

    @property
    def owner(self) -> str:
        """The source, else the id of the write key: owners take turns."""
        return self.source or self.writer

    @property
    def endpoints(self) -> list[str]:
        """The affected endpoints, without collections."""
        return [each.endpoint for each in self.changes]

    @property
    def patched(self) -> list[str]:
        """Endpoints of patches, whose contents are read."""
        return [each.endpoint for each in self.changes if type(each) is Patch]


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
    """Old versions with contents, written directly to the history: those accepted and replaced within the group, and
    undos."""
    unchanged: int = 0
    missed: Sequence[EndpointHead] = field(default_factory=list)
    """Heads of an earlier commit with a lost answer."""
    forgotten: int = 0
    """The sequence up to which deleted endpoints are forgotten."""
    created: list[str] = field(default_factory=list)
    """Endpoints that are not in the store yet."""
    collections: set[str] = field(default_factory=set)
    """The same of the collections that they make."""
    checkpoints: dict[tuple[str, str], str] = field(default_factory=dict)
    """New positions by source and part."""

    @property
    def has_rows(self) -> bool:
        """True if there is anything to write."""
        return bool(self.heads or self.requests or self.checkpoints)


@dataclass(slots=True)
class Basis:
    """The part of the store's state that a plan depends on."""

    heads: Mapping[str, EndpointHead]
    """Heads of all endpoints and collections."""
    replies: Mapping[tuple[str, str], IdempotentReply]
    """Replies to earlier requests with the writes' idempotency keys, by name and writer."""
    sequence: int
    """The counter."""
    count: int
    """Number of endpoints in the store without collections, including deleted ones not yet forgotten."""
    max_endpoints: int
    now_ms: int
    """The time of acceptance."""
    steady_ms: int = 0
    """The time by which endpoints expire (:class:`~services.data.store.retention_clock.SteadyClock`)."""
    contents: Mapping[str, bytes] = field(default_factory=dict)
    """Contents of the endpoints to be patched."""
    count_of: Callable[[str], int] = lambda _collection: 0
    """Returns the number of members of a collection."""
    floor: int = 0
    """Versions of endpoints not in the store begin above this."""
    collections: int = 0
    """Number of collections in the store, counted as endpoints are."""
    names: Sequence[str] = ()
    """All endpoints in the store, sorted, if any write has a bound."""
    collection_names: Sequence[str] = ()
    """The same of collections."""
    checkpoints: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Stored positions of the writes' sources, by source and part."""


def plan(writes: Sequence[Write], basis: Basis) -> WritePlan:
    """Plan writes in order, independently: a refused one does not affect the others."""
    result = WritePlan(basis.sequence, basis.sequence)
    for write in writes:
        try:
            result.outcomes.append(_answer(result, write, basis))
        except DataError as refusal:
            result.outcomes.append(refusal)
    _update_collections(result, basis)
    return result


def _answer(so_far: WritePlan, write: Write, basis: Basis) -> list[Accepted]:
    if write.key is not None:
        known = so_far.requests.get(write.key.owned) or basis.replies.get(write.key.owned)
        if known is not None:
            if known.digest != write.key.digest:
                raise IdempotencyKeyReused(f"the Idempotency-Key {write.key.key[:40]!r} was used for another request")
            return [Accepted(*item) for item in orjson.loads(known.answer)]
    _admit(so_far, write, basis)
    if len(write.changes) == 1 and write.checkpoint is None:
        accepted = _change(so_far, write, write.changes[0], basis)
    else:
        accepted = _change_all(so_far, write, basis)
    if write.key is not None:
        so_far.requests[write.key.owned] = IdempotentReply(write.key.digest, orjson.dumps([[*one] for one in accepted]))
    if write.checkpoint is not None:
        so_far.checkpoints[write.source, write.checkpoint.part] = write.checkpoint.after
    return accepted


def _admit(so_far: WritePlan, write: Write, basis: Basis) -> None:
    """Check the conditions of a write before its changes; raises DataError."""
    if write.checkpoint is not None:
        part = write.source, write.checkpoint.part
        stored = so_far.checkpoints.get(part, basis.checkpoints.get(part)) or None
        if stored != write.checkpoint.before:
            raise CheckpointMoved(*part, stored)
    for endpoint in write.endpoints:
        head = so_far.heads.get(endpoint) or basis.heads.get(endpoint)
        if (basis.floor if head is None else head.version) >= LAST_VERSION:
            raise VersionsUsedUp(endpoint)
        if write.precondition is not None:
            write.precondition.check(endpoint, head)


def _change_all(so_far: WritePlan, write: Write, basis: Basis) -> list[Accepted]:
    """Apply several changes in order; the first refused one leaves the plan as it was."""
    savepoint = _Savepoint.of(so_far, write.endpoints)
    put = dict.fromkeys(each.endpoint for each in write.changes if isinstance(each, Representation))
    # At once: to count the endpoints below a bound takes time.
    if new := [each for each in put if so_far.heads.get(each) is None and basis.heads.get(each) is None]:
        _make_room(so_far, write, basis, new)
    accepted: list[Accepted] = []
    for index, each in enumerate(write.changes):
        try:
            accepted += _change(so_far, write, each, basis, has_room=each.endpoint in put)
        except DataError as refusal:
            savepoint.restore(so_far)
            if write.checkpoint is None:
                raise
            raise ChangeRefused(index, refusal) from refusal
    return accepted


class _Savepoint(NamedTuple):
    """The part of a plan that a write of several changes may alter."""

    sequence: int
    unchanged: int
    heads: dict[str, EndpointHead | None]
    contents: dict[str, bytes | None]
    replaced: int
    superseded: int
    created: list[str]
    collections: set[str]

    @classmethod
    def of(cls, plan: WritePlan, endpoints: Iterable[str]) -> "_Savepoint":
        """Return the present state, as far as changes of ``endpoints`` alter it."""
        heads = {endpoint: plan.heads.get(endpoint) for endpoint in endpoints}
        contents = {endpoint: plan.contents.get(endpoint) for endpoint in heads}
        lengths = len(plan.replaced), len(plan.superseded)
        return cls(plan.sequence, plan.unchanged, heads, contents, *lengths, plan.created, plan.collections)

    def restore(self, plan: WritePlan) -> None:
        """Undo all changes since."""
        plan.sequence, plan.unchanged = self.sequence, self.unchanged
        plan.created, plan.collections = self.created, self.collections
        del plan.replaced[self.replaced :], plan.superseded[self.superseded :]
        _put_back(plan.heads, self.heads)
        _put_back(plan.contents, self.contents)


def _put_back(current: dict[str, T], before: Mapping[str, T | None]) -> None:
    for name, value in before.items():
        if value is None:
            current.pop(name, None)
        else:
            current[name] = value


def _change(so_far: WritePlan, write: Write, change: Change, basis: Basis, *, has_room: bool = False) -> list[Accepted]:
    """Apply one change; the plan stays as it was if that is refused."""
    head = so_far.heads.get(change.endpoint) or basis.heads.get(change.endpoint)
    if isinstance(change, Deletion):
        if (change.expired and not _has_expired(head, basis)) or (change.missing_ok and (head is None or head.gone)):
            return []
        return [_delete(so_far, write, change.endpoint, head, basis.now_ms)]
    made = _patched(so_far, change, head, basis) if isinstance(change, Patch) else change
    _check(made, head)
    if head is None and not has_room:
        _make_room(so_far, write, basis, [made.endpoint])
    return [_put(so_far, write, made, basis)]


def _has_expired(head: EndpointHead | None, basis: Basis) -> bool:
    return head is not None and not head.gone and 0 < head.expires_ms <= basis.steady_ms


def _make_room(so_far: WritePlan, write: Write, basis: Basis, new: Sequence[str]) -> None:
    """Note new endpoints, and the collections that these make; raises TooManyEndpoints."""
    endpoints = [*so_far.created, *new]
    collections = so_far.collections | _missing(new, basis.heads, so_far.collections)
    many, bound = COLLECTIONS_PER_ENDPOINT * basis.max_endpoints, write.bound
    if basis.count + len(endpoints) > basis.max_endpoints:
        raise TooManyEndpoints(f"the store may hold {basis.max_endpoints} endpoints, {_DELETED}")
    if basis.collections + len(collections) > many:
        raise TooManyEndpoints(f"the store may hold {many} collections, {_DELETED}: use names with fewer segments")
    if bound is not None:
        below = f" below {' '.join(bound.prefixes)}" if bound.prefixes else ""
        if bound.count(basis.names) + sum(map(bound.covers, endpoints)) > bound.most:
            raise TooManyEndpoints(
                f"this write key may make endpoints while there are fewer than {bound.most}{below}, {_DELETED}: "
                "a key made with a greater --endpoints may make more"
            )
        many = COLLECTIONS_PER_ENDPOINT * bound.most
        if bound.count(basis.collection_names) + sum(map(bound.covers, collections)) > many:
            raise TooManyEndpoints(
                f"there may be {many} collections{below} for this write key, {_DELETED}: use names with fewer segments"
            )
    so_far.created, so_far.collections = endpoints, collections


def _missing(endpoints: Iterable[str], *known: Container[str]) -> set[str]:
    """Return the collections of ``endpoints``, and those of these, that are not known."""
    found = set[str]()
    for endpoint in endpoints:
        name = collection_of(endpoint)
        while name and name not in found and not any(name in each for each in known):
            found.add(name)
            name = collection_of(name)
    return found


def _check(new: Representation, head: EndpointHead | None) -> None:
    """Check that content may follow the stored one; raises DataError."""
    if head is None or head.gone:
        return
    kind, stored = kind_of(new.media_type), kind_of(head.media_type)
    if kind is not stored:
        raise WrongKind(new.endpoint, stored.name, kind.name, head.media_type)
    kind.check_successor(new.endpoint, head.labels, new.labels)


def _patched(so_far: WritePlan, patch: Patch, head: EndpointHead | None, basis: Basis) -> Representation:
    """Return what a patch makes of the stored content."""
    if head is None or head.gone:
        if patch.initial is not None:
            return patch.initial
        raise UnknownEndpoint(patch.endpoint) if head is None else EndpointDeleted(patch.endpoint, head.version)
    kind = kind_of(head.media_type)
    if patch.body.media_type not in kind.patches:
        raise UnpatchableKind(patch.endpoint, kind.name, patch.body.media_type, ", ".join(sorted(kind.patches)))
    content = so_far.contents.get(patch.endpoint)
    stored = head.with_content(basis.contents[patch.endpoint] if content is None else content)
    made = kind.patch(patch.endpoint, stored, patch.body._replace(labels=head.labels))
    made.check_size(patch.max_bytes)
    patch.check(patch.endpoint, made.content)
    ttl_ms = patch.ttl_ms or (max(1, head.expires_ms - basis.steady_ms) if head.expires_ms else 0)
    return made.expiring(ttl_ms)


def _put(so_far: WritePlan, write: Write, new: Representation, basis: Basis) -> Accepted:
    endpoint, now_ms = new.endpoint, basis.now_ms
    # The current head: one write of a source may contain an endpoint twice.
    head = so_far.heads.get(endpoint) or basis.heads.get(endpoint)
    title, labels = new.title or (head.title if head else ""), new.labels
    if head is not None and head.labels != labels and kind_of(head.media_type) is kind_of(new.media_type):
        labels = merge_labels(labels, head.labels)
    expires_ms = basis.steady_ms + new.ttl_ms if new.ttl_ms else 0
    content = (new.media_type, new.digest)
    if head is not None and not head.gone and new.digest and (head.media_type, head.digest) == content:
        so_far.unchanged += 1
        same = head._replace(title=title, labels=labels, expires_ms=expires_ms)
        if same != head:
            so_far.heads[endpoint] = same
            so_far.contents[endpoint] = new.content
        return Accepted(endpoint, head.version, changed=False)
    version = next_version(head.version if head else basis.floor, now_ms)
    if head is not None and undo.is_worthwhile(new.undo, new.content):
        so_far.superseded.append(undo.pack(head, new.undo, version))
    else:
        _archive(so_far, head)
    so_far.sequence += 1
    so_far.heads[endpoint] = EndpointHead(
        endpoint,
        so_far.sequence,
        version,
        UPDATE,
        now_ms,
        new.media_type,
        title,
        write.source,
        labels,
        new.digest,
        expires_ms,
    )
    so_far.contents[endpoint] = new.content
    return Accepted(endpoint, version, changed=True)


def _delete(so_far: WritePlan, write: Write, endpoint: str, head: EndpointHead | None, now_ms: int) -> Accepted:
    if head is None:
        raise UnknownEndpoint(endpoint)
    if head.gone:
        raise EndpointDeleted(endpoint, head.version)
    _archive(so_far, head)
    so_far.sequence += 1
    version = next_version(head.version, now_ms)
    so_far.heads[endpoint] = head._replace(
        sequence=so_far.sequence,
        version=version,
        kind=GONE,
        changed_ms=now_ms,
        source=write.source,
        digest=b"",
        expires_ms=0,
    )
    so_far.contents[endpoint] = b""
    return Accepted(endpoint, version, changed=True)


def _update_collections(so_far: WritePlan, basis: Basis) -> None:
    """Give a new version to each collection with other members than before, from the deepest up.

    The first member of a collection creates it, which makes it a member of its own collection; the last one deletes it.
    """
    changes: Counter[str] = Counter()
    touched: set[str] = set()

    def touch(member: str, change: int) -> None:
        if collection := collection_of(member):
            changes[collection] += change
            touched.add(collection)

    for endpoint, head in so_far.heads.items():
        if change := membership(basis.heads.get(endpoint), head):
            touch(endpoint, change)
    while touched:
        name = max(touched, key=len)
        touched.remove(name)
        known = basis.heads.get(name)
        existed = known is not None and not known.gone
        exists = basis.count_of(name) + changes[name] > 0
        if not existed and not exists:
            continue
        if exists != existed:
            touch(name, exists - existed)
        _change_collection(so_far, name, basis, exists=exists)


def _change_collection(so_far: WritePlan, name: str, basis: Basis, *, exists: bool) -> None:
    known = basis.heads.get(name)
    previous = known.version if known else basis.floor
    if previous >= LAST_VERSION:
        return
    so_far.sequence += 1
    kind, version = UPDATE if exists else GONE, next_version(previous, basis.now_ms)
    so_far.heads[name] = EndpointHead(
        name, so_far.sequence, version, kind, basis.now_ms, COLLECTION, "", "", NO_LABELS, b""
    )
    so_far.contents[name] = b""


def _archive(so_far: WritePlan, head: EndpointHead | None) -> None:
    """Move the version of ``head``, about to be replaced, into the history."""
    if head is None:
        return
    if head.sequence > so_far.began:
        so_far.superseded.append((head, so_far.contents[head.endpoint]))
    else:
        so_far.replaced.append(head.endpoint)
