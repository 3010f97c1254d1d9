"""Versions of the internal protocol: feeds, links of proxies, the watch, REST of internal listeners, the map; pure.

Both ends of a connection announce their versions with the proof of the key (docs/internals.md section 1.2). The version
is increased by changes that peers of earlier releases cannot ignore; ``OURS.oldest`` when support for those releases
ends.
"""

import re
from typing import Final, NamedTuple

_RANGE: Final = re.compile(r"([1-9][0-9]{0,5})-([1-9][0-9]{0,5})")


class Versions(NamedTuple):
    """The versions supported by a process, from oldest to newest."""

    oldest: int
    newest: int

    def __str__(self) -> str:
        """Return the versions in words."""
        return str(self.newest) if self.oldest == self.newest else f"{self.oldest} to {self.newest}"

    @property
    def announcement(self) -> str:
        """The versions in the form announced."""
        return f"{self.oldest}-{self.newest}"

    def speaks_with(self, other: "Versions") -> bool:
        """Return whether the two have a version in common."""
        return self.oldest <= other.newest and other.oldest <= self.newest


OURS: Final = Versions(1, 2)
"""Versions of this release. Version 2 announces its versions, and ignores unknown feed messages."""
UNANNOUNCED: Final = Versions(1, 1)
"""Versions of a peer that announces none, as early releases do."""


def parse(announced: str | None) -> Versions | None:
    """Parse the versions announced by a peer (None: nothing announced); None if malformed."""
    if announced is None:
        return UNANNOUNCED
    match = _RANGE.fullmatch(announced)
    versions = Versions(int(match[1]), int(match[2])) if match else None
    return versions if versions is not None and versions.oldest <= versions.newest else None


def remedy(theirs: Versions, peer: str) -> str:
    """Return the line about a peer without a common version: both sides, and the remedy."""
    older = "this process" if theirs.oldest > OURS.newest else peer
    return f"{peer} speaks version {theirs} of the internal protocol, this process {OURS}: replace {older} first"
