"""Bytes between processes of this machine, from ``ss``."""

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

_OWNER: Final = re.compile(r"pid=(\d+)")
_RECEIVED: Final = re.compile(r"\bbytes_received:(\d+)")


class Socket(NamedTuple):
    """One end of an established TCP connection."""

    pid: int
    local: str
    peer: str
    received: int


def parse(text: str) -> Iterator[Socket]:
    """Parse the output of ``ss -tinpH``: a line with addresses and owner, then one with counters."""
    lines = text.splitlines()
    for head, counters in pairwise(lines):
        if head[:1].isspace() or not counters[:1].isspace():
            continue
        owner, fields = _OWNER.search(head), head.split()
        if owner is not None and fields[0] == "ESTAB":
            found = _RECEIVED.search(counters)
            yield Socket(int(owner[1]), fields[3], fields[4], int(found[1]) if found else 0)


def between(sockets: Iterator[Socket]) -> Mapping[tuple[int, int], int]:
    """Return the bytes by sender and receiver, both as process ids; the other end must be of this machine."""
    known = list(sockets)
    owner = {(_plain(each.local), _plain(each.peer)): each.pid for each in known}
    found: defaultdict[tuple[int, int], int] = defaultdict(int)
    for each in known:
        sender = owner.get((_plain(each.peer), _plain(each.local)))
        if sender is not None:
            found[sender, each.pid] += each.received
    return found


def _plain(address: str) -> str:
    """Return an address without the form that IPv6 sockets have for IPv4 peers, as Java's do."""
    return address.replace("[::ffff:", "").replace("]", "")


def received() -> Mapping[tuple[int, int], int]:
    """Return the bytes that processes have received on connections that are open, by sender and receiver."""
    result = subprocess.run(["ss", "-tinpH"], capture_output=True, text=True, check=True)
    return between(parse(result.stdout))
