"""A group of writes as one transaction of a database: what it reads, decides and writes. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from services.data.errors import StoreReplaced
from services.data.store.index import EndpointHead
from services.data.store.retention import Deletions
from services.data.store.tables import Cursor
from services.data.store.write_plan import IdempotentReply, WritePlan


class Counter(NamedTuple):
    """The store's only row."""

    sequence: int
    floor: int
    """Endpoints not in the store begin above this version."""
    forgotten: int
    """The sequence up to which deleted endpoints are forgotten."""


# Not frozen: every write makes several, and a frozen one takes five times as long.
@dataclass(slots=True)
class StoredRows:
    """The part of the store's state that a group depends on, beside the index.

    Attributes:
        counter: the store's counter. missed: heads beyond the index, of commits whose answers were lost. replies: to
        earlier requests with the group's idempotency keys, by name and writer. contents: of endpoints to be patched.
    checkpoints: positions of the group's sources, by source and part.
    """

    counter: Counter
    missed: Sequence[EndpointHead] = ()
    replies: dict[tuple[str, str], IdempotentReply] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)
    checkpoints: dict[tuple[str, str], str] = field(default_factory=dict)


@dataclass(slots=True)
class Group:
    """A group of writes.

    Attributes:
        known: the sequence of the index. keys: names of idempotency keys, sorted. patched: endpoints whose contents are
        read, sorted. sources: those with checkpoints, sorted. decide: returns the plan for a state; may be called again
        for a later one. retention_ms: the time reached by the retention clock. deletions: rows that are due. history:
        whether replaced versions are retained. cursor: the publisher's, to be stored with the group; None: it stays.
    """

    known: int
    keys: Sequence[str]
    patched: Sequence[str]
    sources: Sequence[str]
    decide: Callable[[StoredRows], WritePlan]
    retention_ms: int
    deletions: Deletions
    history: bool = True
    cursor: Cursor | None = None


def check_counter(counter: Counter, known: int) -> Counter:
    """Return the counter; raises StoreReplaced if its sequence is below ``known``."""
    if counter.sequence < known:
        raise StoreReplaced(f"the store was at {known} and is at {counter.sequence}")
    return counter
