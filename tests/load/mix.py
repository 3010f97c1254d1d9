"""The endpoints of a mix of kinds: their names, in an order that spreads the kinds, and the tables that they need."""

from collections.abc import Sequence
from typing import Final

from diem.protocol.endpoints import collection_of

ROOT: Final = "/load-test/"
SERIES: Final = "series"
DOCUMENTS: Final = "documents"
"""Documents of some hundred bytes, which are patched."""
SIZED: Final = "sized"
"""JSON of 10 B to 1 MiB."""
OCTETS: Final = "octets"
"""Bytes of 10 B to 1 MiB."""
NOTICES: Final = "notices"
EXPIRING: Final = "expiring"
"""Documents with a time to live, some of which are renewed."""
GAMES: Final = "games"
"""Members of collections, which are made and deleted."""
COLLECTIONS: Final = "collections"
_CYCLE: Final = (SERIES, SERIES, DOCUMENTS, SERIES, SIZED, GAMES, SERIES, OCTETS, "")
"""Kinds of the names one after another; the last is a notice, or what expires."""
GROUPS: Final = 4
"""Number of collections whose members come and go."""
KINDS: Final = (SERIES, DOCUMENTS, SIZED, OCTETS, NOTICES, EXPIRING, GAMES, COLLECTIONS)
URL: Final = "https://data.example/v1{endpoint}"
TABLES: Final = f"""
[[prefix]]
prefix = "{ROOT}{NOTICES}"
kind = "notice"
url = "{URL}"
[[inline]]
prefix = "{ROOT}{SIZED}"
max_bytes = 32768
"""
"""Tables of ``diem.toml``."""


def names_of(count: int) -> list[str]:
    """Return the names of so many endpoints, which are written."""
    return [_name(number) for number in range(count)]


def _name(number: int) -> str:
    round_, place = divmod(number, len(_CYCLE))
    kind = _CYCLE[place] or (NOTICES, EXPIRING)[round_ % 2]
    group = f"{round_ % GROUPS}/" if kind == GAMES else ""
    return f"{ROOT}{kind}/{group}{number:03}"


def collections_of(names: Sequence[str]) -> list[str]:
    """Return the collections that these endpoints make."""
    found: set[str] = set()
    due = list(names)
    while due:
        if (collection := collection_of(due.pop())) and collection not in found:
            found.add(collection)
            due.append(collection)
    return sorted(found)


def groups_of(names: Sequence[str]) -> list[str]:
    """Return the prefixes of the collections whose members come and go."""
    return sorted({name.rpartition("/")[0] for name in names if kind_of(name) == GAMES})


def kind_of(name: str) -> str:
    """Return the kind of an endpoint by its name."""
    if name.endswith("/"):
        return COLLECTIONS
    head, _, rest = name.removeprefix(ROOT).partition("/")
    return head if rest else SERIES
