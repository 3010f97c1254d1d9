"""The oracle of sources: of each endpoint, the store has exactly the records of its key, in their order.

Each record has a unique number. The number of a deletion is None.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import orjson
from sqlalchemy import select, union_all

from diem.protocol.update import GONE
from services.data.store.database import database_at
from services.data.store.tables import ENDPOINTS, HISTORY

Numbers = Sequence[int | None]


class Faults(NamedTuple):
    """Numbers of records of all endpoints that are not as they must be."""

    lost: int = 0
    doubled: int = 0
    misplaced: int = 0
    """Endpoints whose records are all there once, in another order."""
    stale: int = 0
    """Endpoints whose last value is another."""

    @property
    def total(self) -> int:
        """Their sum."""
        return sum(self)


def judge(written: Mapping[str, Numbers], stored: Mapping[str, Numbers], *, exactly_once: bool = True) -> Faults:
    """Compare the records of each endpoint with its versions, both in ascending order.

    Without ``exactly_once`` only the last values are compared.
    """
    lost = doubled = misplaced = stale = 0
    for endpoint in written.keys() | stored.keys():
        wanted, found = written.get(endpoint, ()), stored.get(endpoint, ())
        stale += wanted[-1:] != found[-1:]
        if not exactly_once or [*wanted] == [*found]:
            continue
        missing, more = Counter(wanted), Counter(found)
        lost += (missing - more).total()
        doubled += (more - missing).total()
        misplaced += missing == more
    return Faults(lost, doubled, misplaced, stale)


async def versions(url: str, prefix: str) -> dict[str, list[int | None]]:
    """Return the numbers of all versions of the endpoints below a prefix, in the order of their versions.

    Nothing may have the database open. The contents are documents with a member ``n``.
    """
    database = database_at(url, 5.0)
    columns = ("endpoint", "version", "kind", "content")
    rows = union_all(*(select(*(table.c[name] for name in columns)) for table in (HISTORY, ENDPOINTS)))
    found: dict[str, dict[int, int | None]] = defaultdict(dict)
    try:
        async with database.reading() as connection:
            for endpoint, version, kind, content in await connection.execute(rows):
                if endpoint.startswith(prefix) and not endpoint.endswith("/"):
                    found[endpoint][version] = None if kind == GONE else orjson.loads(content)["n"]
    finally:
        await database.close()
    return {endpoint: [numbers[version] for version in sorted(numbers)] for endpoint, numbers in found.items()}
