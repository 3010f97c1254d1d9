"""Versions of the internal protocol: feeds, links of proxies, the watch, REST of internal listeners, the map; pure.

Both ends of a connection announce the versions that they speak, with the proof of the key (docs/protocol.md section
7.2). The version grows when a process has to say or to understand something that its peers of earlier releases cannot
ignore; ``OURS.oldest`` grows when a release no longer speaks with those.
"""

import re
from typing import Final, NamedTuple

_RANGE: Final = re.compile(r"([1-9][0-9]{0,5})-([1-9][0-9]{0,5})")


class Versions(NamedTuple):
    """The versions that a process speaks, from the oldest to the newest."""

    oldest: int
    newest: int

    def __str__(self) -> str:
        """Return the versions in words."""
        return str(self.newest) if self.oldest == self.newest else f"{self.oldest} to {self.newest}"

    @property
    def announcement(self) -> str:
        """The versions as they are announced."""
        return f"{self.oldest}-{self.newest}"

    def speaks_with(self, other: "Versions") -> bool:
        """Return whether there is a version that both speak."""
        return self.oldest <= other.newest and other.oldest <= self.newest


OURS: Final = Versions(1, 2)
"""Of this release. Version 2: announces its versions, and ignores messages of feeds that it does not know."""
UNANNOUNCED: Final = Versions(1, 1)
"""Of a peer that announces nothing, as all releases before the first one that does."""


def parse(announced: str | None) -> Versions | None:
    """Return the versions that a peer announced (None: it announced nothing); None if they are malformed."""
    if announced is None:
        return UNANNOUNCED
    match = _RANGE.fullmatch(announced)
    versions = Versions(int(match[1]), int(match[2])) if match else None
    return versions if versions is not None and versions.oldest <= versions.newest else None


def remedy(theirs: Versions, peer: str) -> str:
    """Return the line about a peer with which this process has no version in common: both sides, and what to do."""
    older = "this process" if theirs.oldest > OURS.newest else peer
    return f"{peer} speaks version {theirs} of the internal protocol, this process {OURS}: replace {older} first"
